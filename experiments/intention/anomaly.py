"""Set anomaly detection (Intention paper, Section 5.5 and Appendix 8; Table 3): which of ten images is of another class?

The experiment is that of the University of Amsterdam's Deep Learning tutorial 6, which the paper does not name. Numbers that
the paper does not give are the tutorial's. There every image is the anomaly once in an epoch; here each step draws its
anomalies uniformly among all images, so that a step is a pure function of a key.
"""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import over_tasks
from experiments.harness.experiment import Experiment
from experiments.intention import anomaly_data, anomaly_figures, anomaly_tables
from experiments.intention.anomaly_data import Images
from kvq_jax.models import SetAnomalyDetector

SECTIONS = ("task", "data", "features", "model")


class AnomalySet(flax.struct.PyTreeNode):
    """A set of N images, all but one of the same class."""

    feature: jax.Array  # [N, d]
    index: jax.Array  # [N]: which images of the split they are
    anomaly: jax.Array  # []: which of the N is of another class
    training: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """An image drawn uniformly, and set_size - 1 different ones of a class drawn uniformly among the others."""

    set_size: int

    def __post_init__(self):
        if self.set_size < 3:
            raise ValueError(f"set_size must be at least 3, got {self.set_size}: of two images neither is the anomaly")

    def sample(self, key: jax.Array, data: Images) -> AnomalySet:
        """One set; its anomaly is at a place drawn uniformly."""
        anomaly_key, class_key, normal_key, place_key = jax.random.split(key, 4)
        classes, largest = data.members.shape
        anomaly = jax.random.randint(anomaly_key, (), 0, len(data.label))
        normal_class = (data.label[anomaly] + jax.random.randint(class_key, (), 1, classes)) % classes
        lots = jax.random.uniform(normal_key, (largest,))
        lots = jnp.where(jnp.arange(largest) < data.count[normal_class], lots, -1)
        normal = data.members[normal_class, jax.lax.top_k(lots, self.set_size - 1)[1]]
        place = jax.random.randint(place_key, (), 0, self.set_size)
        index = jnp.roll(jnp.append(anomaly, normal), place)
        return AnomalySet(data.feature[index], index, place, data.training)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The config's `evaluation` section, less what every experiment has."""

    tasks: int
    batch_size: int  # sets evaluated at once
    example_sets: int  # kept for the figure


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and anomaly_data.DataError."""
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
        return model.init(key, jnp.zeros((task.set_size, data["train"].feature.shape[-1])))

    def loss(variables, batch, key):
        scores = logits(variables, batch, key)
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, batch.anomaly)
        return losses.mean(), ({"accuracy": jnp.mean(scores.argmax(-1) == batch.anomaly)}, {})

    def evaluate(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            scores = logits(variables, sampled)
            loss = optax.softmax_cross_entropy_with_integer_labels(scores, sampled.anomaly)
            return {"accuracy": jnp.float32(scores.argmax(-1) == sampled.anomaly), "cross_entropy": loss}

        return over_tasks(one, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            probability = jax.nn.softmax(logits(variables, sampled))
            return {"image": test.image[sampled.index], "anomaly": sampled.anomaly, "prediction": probability}

        return over_tasks(one, key, evaluation.example_sets, evaluation.example_sets)

    return Experiment(
        init, task.sample, loss, evaluate, examples, data, anomaly_tables.run_table, anomaly_figures.run_figure, facts
    )


def _check_sizes(task: Anomaly, data: dict[str, Images]) -> None:
    """Raises ConfigError for a split with fewer than two classes, or a class too small for a set."""
    for name, images in data.items():
        if len(images.count) < 2:
            raise ConfigError(f"config.data: the {name} images are of {len(images.count)} class; an anomaly needs two")
        if images.count.min() < task.set_size - 1:
            raise ConfigError(
                f"config.task.set_size: {task.set_size} images need classes of {task.set_size - 1}; "
                f"one of the {name} images has {images.count.min()}"
            )
