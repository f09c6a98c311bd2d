"""CMANP on functions of Gaussian processes, looked at more closely: CMANP paper, Section 4.2.1 and appendix.

The experiment of neural_processes.gp with two changes: a model that predicts by blocks is judged with blocks of several
sizes, all on the same functions, and the examples are those of curves.py.
"""

import dataclasses

import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.experiment import Experiment
from experiments.neural_processes.analyses import curves
from experiments.neural_processes.gp import experiment as gp
from experiments.neural_processes.predicting import curve
from experiments.tasks.gaussian_process import GaussianProcess
from kvq_jax.domains import Count
from kvq_jax.models import family

SECTIONS = gp.SECTIONS


@dataclasses.dataclass(frozen=True)
class Evaluation(gp.Evaluation):
    """The config's `evaluation` section, without what all experiments share.

    Curves have example_counts[-1] context points.
    """

    block_sizes: tuple[Count, ...]  # of targets, for a model that predicts by blocks; () for the others


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    own = settings.build(Evaluation, evaluation, "config.evaluation")
    shared = {name: value for name, value in evaluation.items() if name != "block_sizes"}
    made = gp.build(config, shared, data_dir)
    model = settings.build_named(family("neural_process"), config.model, "config.model")
    by_blocks = {size: gp.build(_with_blocks(config, size), shared, data_dir) for size in own.block_sizes}
    x = jnp.linspace(*config.task.position, own.example_points)
    most = settings.build(GaussianProcess, config.task, "config.task").most_targets

    def evaluate(variables, test, key):
        values = made.evaluate(variables, test, key)
        for size, judged in by_blocks.items():
            found = judged.evaluate(variables, test, key)
            values |= {f"{name}@{size}": of for name, of in found.items() if name.endswith(("/target", "/gap_joint"))}
        return values

    def examples(variables, test, key):
        def predict(context, x):
            return curve(lambda x: model.apply(variables, context, x, key=key), x, most)

        return curves.predicted(predict, own.example_counts[-1], x, key)

    return dataclasses.replace(made, evaluate=evaluate, examples=examples)


def _with_blocks(config: ConfigDict, size: int) -> ConfigDict:
    return ConfigDict(config.to_dict() | {"model": config.model.to_dict() | {"block_size": size}})
