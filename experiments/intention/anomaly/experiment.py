"""Set anomaly detection: which of ten images is of another class? (Intention paper, Section 5.5, Appendix 8; Table 3)

The experiment is that of the University of Amsterdam's Deep Learning tutorial 6, which the paper does not name. Numbers
that the paper does not give are the tutorial's. There every image is the anomaly once in an epoch. Here each step draws
its anomalies uniformly among all images, so that a step is a pure function of a key.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import over_tasks
from experiments.harness.experiment import Experiment
from experiments.intention.anomaly import data as anomaly_data
from experiments.tasks.anomaly import Anomaly, Images
from kvq_jax.domains import Count
from kvq_jax.models import SetAnomalyDetector

SECTIONS = ("task", "data", "features", "model")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What this experiment adds to the config's `evaluation` section."""

    tasks: Count
    batch_size: Count  # sets evaluated at once
    example_sets: Count  # kept for the figure


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(Anomaly, config.task, "config.task")
    layer, fields = settings.named(config.model, "config.model")
    model = settings.build(SetAnomalyDetector, fields, "config.model", layer=layer)
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    data, facts = anomaly_data.load(config, data_dir)
    _check_sizes(task, data)

    def logits(variables, batch, key=None):
        options = dict(rngs={"dropout": key}, deterministic=False) if batch.training else {}
        return model.apply(variables, batch.feature, **options)

    def init(key):
        shape = (task.set_size, data["train"].feature.shape[-1])
        return model.lazy_init(key, jax.ShapeDtypeStruct(shape, jnp.float32))

    def judged(scores, batch):
        right = jnp.float32(scores.argmax(-1) == batch.anomaly)
        return right, optax.softmax_cross_entropy_with_integer_labels(scores, batch.anomaly)

    def loss(variables, batch, key):
        right, losses = judged(logits(variables, batch, key), batch)
        return losses.mean(), ({"accuracy": right.mean()}, {})

    def evaluate(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            return dict(zip(("accuracy", "cross_entropy"), judged(logits(variables, sampled), sampled)))

        return over_tasks(one, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            probability = jax.nn.softmax(logits(variables, sampled))
            return {"image": test.image[sampled.index], "anomaly": sampled.anomaly, "prediction": probability}

        return over_tasks(one, key, evaluation.example_sets, evaluation.example_sets)

    return Experiment(init, task.sample, loss, evaluate, examples, data, facts, model=model)


def _check_sizes(task: Anomaly, data: dict[str, Images]) -> None:
    """Raises ConfigError for a split with fewer than two classes, or with a class too small for a set."""
    for name, images in data.items():
        if len(images.count) < 2:
            raise ConfigError(f"config.data: the {name} images are of {len(images.count)} class; an anomaly needs two")
        if images.count.min() < task.set_size - 1:
            raise ConfigError(
                f"config.task.set_size: {task.set_size} images need classes of {task.set_size - 1}; "
                f"one of the {name} images has {images.count.min()}"
            )
