"""The class of a point cloud (Set Transformer, Section 5.5, Table 4): ModelNet40, or surfaces that need no data.

Of ModelNet40 each test cloud is judged once, or as many of them as `evaluation.tasks` asks for; surfaces are drawn.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from experiments.data import modelnet
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.set_transformer.networks import network
from experiments.set_transformer.splits import hold_out
from experiments.tasks.base import each_once
from experiments.tasks.clouds import Clouds, ResidentClouds, Surfaces
from experiments.tasks.surfaces import SURFACES
from kvq_jax.domains import Count, Share
from kvq_jax.models import SET_CLASSIFIERS

SECTIONS = ("task", "data", "model")
_SURFACES = "surfaces"


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    source: str  # 'surfaces', or a key of modelnet.SOURCES
    resident: Count  # points that are drawn from each surface of an OFF file, once
    validation_fraction: Share  # of the training clouds


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(Clouds, config.task, "config.task")
    model = network(config, SET_CLASSIFIERS)
    evaluation = settings.build(TaskEvaluation, evaluation, "config.evaluation")
    data, name, classes = _load(settings.build(DataSettings, config.data, "config.data"), task, data_dir)
    if model.num_outputs != 1 or model.out_features != len(classes):
        raise ConfigError(f"config.model.out_features: {model.out_features} in a row for {len(classes)} classes")

    def init(key):
        return model.lazy_init(key, jax.ShapeDtypeStruct((task.points, 3), jnp.float32))

    def judged(variables, sets, key=None):
        options = dict(rngs={"dropout": key}, deterministic=False) if sets.training else {}
        scores = model.apply(variables, sets.x, **options)[..., 0, :]
        right = jnp.float32(scores.argmax(-1) == sets.truth)
        return right, optax.softmax_cross_entropy_with_integer_labels(scores, sets.truth), scores

    def loss(variables, batch, key):
        right, losses, _ = judged(variables, batch, key)
        return losses.mean(), ({"accuracy": right.mean()}, {})

    def over_clouds(function, test, key, count):
        """What function(cloud) gives of `count` test clouds, none of the resident ones twice."""
        number = each_once(key, len(test.label), count) if isinstance(test, ResidentClouds) else None
        keys = jax.random.split(key, count if number is None else len(number))
        one = lambda given: function(task.sample(given[0], test, given[1]))
        return jax.lax.map(one, (keys, number), batch_size=evaluation.batch_size)

    def evaluate(variables, test, key):
        one = lambda cloud: dict(zip(("accuracy", "cross_entropy"), judged(variables, cloud)))
        return over_clouds(one, test, key, evaluation.tasks)

    def examples(variables, test, key):
        def one(cloud):
            return {"x": cloud.x, "truth": cloud.truth, "prediction": judged(variables, cloud)[2].argmax(-1)}

        return over_clouds(one, test, key, evaluation.example_tasks)

    facts = {"data": name, "classes": list(classes)}
    return Experiment(init, task.sample, loss, evaluate, examples, data, facts, model=model)


def _load(own: DataSettings, task: Clouds, data_dir: str | None) -> tuple[dict, str, tuple[str, ...]]:
    """Clouds of each split, what to call them, and their classes. Raises ConfigError and DataError."""
    if own.source == _SURFACES:
        data = {split: Surfaces(split == "train") for split in NO_DATA}
        return data, f"surfaces of {len(SURFACES)} kinds", tuple(SURFACES)
    if own.resident < task.points:
        raise ConfigError(f"config.data.resident: {own.resident} points of a surface, a set has {task.points}")
    found = modelnet.load(own.source, data_dir, own.resident if own.source == "off" else task.points)
    parts = hold_out(own.validation_fraction, len(found.train.label), "clouds")
    data = {
        split: ResidentClouds(found.train.points[part], found.train.label[part], split == "train")
        for split, part in parts.items()
    }
    return data | {"test": ResidentClouds(*found.test, False)}, found.name, found.classes
