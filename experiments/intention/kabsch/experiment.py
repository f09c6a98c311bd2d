"""From five pairs of points to the map between them (Intention paper, Section 5.4, Appendix 7; Figures 10 and 11).

The regression of experiments.tasks.kabsch, whose examples are maps of a whole point cloud.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.data import point_cloud
from experiments.data.errors import DataError
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.regression.experiment import regression
from experiments.regression.measures import predictor
from experiments.tasks.kabsch import Kabsch
from kvq_jax.domains import Count
from kvq_jax.models import MODELS

SECTIONS = ("task", "model")


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section. The example tasks are maps of the point cloud."""

    cloud: str  # 'rabbit', the drawn one, or a .obj, .ply or .npy file, its path absolute or relative to --data_dir
    cloud_points: Count  # of the cloud, drawn without replacement


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(Kabsch, config.task, "config.task")
    model = settings.build_named(MODELS, config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    cloud = task.point_std * _cloud(evaluation, task, data_dir)

    def examples(variables, test, key):
        def one(task_key):
            pair_key, map_key = jax.random.split(task_key)
            pairs = jax.random.choice(pair_key, cloud, (task.pairs,), replace=False)
            context, target, _ = task.task_of(map_key, pairs, cloud)
            predicted = predictor(model, variables, target, task_key)(context)
            return {"context_x": context.x, "context_y": context.y, "target": target.y} | predicted

        return {"cloud": cloud} | over_tasks(one, key, evaluation.example_tasks, 1)

    return regression(model, task, task, NO_DATA, evaluation, examples)


def _cloud(evaluation: Evaluation, task: Kabsch, data_dir: str | None) -> jax.Array:
    """[cloud_points, dimension], centred, with a mean square of 1: a space cloud in the plane is seen along z."""
    if evaluation.cloud == "rabbit":
        points = point_cloud.rabbit(evaluation.cloud_points)
    elif data_dir is None and not Path(evaluation.cloud).is_absolute():
        raise DataError(f"the point cloud {evaluation.cloud} is read from a folder: pass --data_dir")
    else:
        points = point_cloud.read(Path(data_dir or "", evaluation.cloud))
    if not task.pairs <= evaluation.cloud_points <= len(points):
        raise ConfigError(
            f"config.evaluation.cloud_points: {evaluation.cloud_points} is not between the {task.pairs} observed pairs "
            f"and the {len(points)} points of {evaluation.cloud}"
        )
    chosen = np.random.default_rng(0).choice(len(points), evaluation.cloud_points, replace=False)
    centred = points[chosen, : task.dimension] - points[chosen, : task.dimension].mean(0)
    return jnp.asarray(centred / max(np.sqrt(np.mean(centred**2)), 1e-12))
