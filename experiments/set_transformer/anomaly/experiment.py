"""Which image of a set does not belong (Set Transformer, Section 5.4): by the areas under two curves.

The paper's sets are of faces of CelebA. Seven have two attributes, the eighth has neither of them. In the same form of
images of classes, seven are of one class and the eighth of another; no class is in two splits.

The network gives a logit for each image, and is trained on the cross-entropy of the anomaly's place. It is judged by
the area under the receiver operating characteristic (AUROC) and the average precision (AUPR): of the probabilities in
each set, and of those in many sets together.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from experiments.data import celeba, image_classes
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.set_transformer.anomaly import host
from experiments.set_transformer.networks import network
from experiments.tasks.odd_one_out import AttributedImages, OddOneOut
from kvq_jax.domains import Count
from kvq_jax.models import IMAGE_SET_DETECTORS

SECTIONS = ("task", "data", "model")
_CELEBA = "celeba"


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    source: str  # 'celeba', or a key of image_classes.SOURCES
    size: Count  # images are resized to size x size pixels


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section."""

    together: Count  # sets whose images are judged by one curve; divides `tasks`

    def __post_init__(self):
        if self.tasks % self.together:
            raise ValueError(f"together={self.together} does not divide tasks={self.tasks}")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(OddOneOut, config.task, "config.task")
    model = network(config, IMAGE_SET_DETECTORS)
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    data, name = _load(config.data, task, data_dir)

    def logits(variables, sets):
        """Logits [..., N] of each set, and the collections that a training step updates."""
        options = dict(train=sets.training, mutable=["batch_stats"] if sets.training else [])
        return model.apply(variables, jnp.float32(sets.x) / 255, **options)

    def init(key):
        shape = (task.set_size, *data["train"].image.shape[1:])
        return model.lazy_init(key, jax.ShapeDtypeStruct(shape, jnp.float32))

    def loss(variables, batch, key):
        found, collections = logits(variables, batch)
        losses = optax.softmax_cross_entropy_with_integer_labels(found, batch.truth)
        right = jnp.float32(found.argmax(-1) == batch.truth)
        return losses.mean(), ({"accuracy": right.mean()}, collections)

    def judged(task_key, variables, test):
        sampled = task.sample(task_key, test)
        probability = jax.nn.softmax(logits(variables, sampled)[0])
        return sampled.x, {"place": sampled.truth, "probability": probability}

    def evaluate(variables, test, key):
        one = lambda task_key: judged(task_key, variables, test)[1]
        return over_tasks(one, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            image, found = judged(task_key, variables, test)
            return {"image": image, "anomaly": found["place"], "prediction": found["probability"]}

        return over_tasks(one, key, evaluation.example_tasks, evaluation.batch_size)

    def metrics(arrays):
        return host.curves(arrays["probability"], arrays["place"], evaluation.together)

    facts = {"data": name, "images": {split: len(part.image) for split, part in data.items()}}
    return Experiment(init, task.sample, loss, evaluate, examples, data, facts, model=model, host=metrics)


def _load(section: ConfigDict, task: OddOneOut, data_dir: str | None) -> tuple[dict[str, AttributedImages], str]:
    """The images of each split, and what to call them. Raises ConfigError and DataError."""
    own = settings.build(DataSettings, section, "config.data")
    load = _faces if own.source == _CELEBA else _classes
    name, parts = load(own, data_dir)
    data = {}
    for split, (image, attribute) in parts.items():
        common = task.common(attribute)
        if not len(common):
            raise ConfigError(
                f"config.task: no {task.shared} attribute(s) of the {split} images of {name} are those of "
                f"{task.set_size - 1} of them and not of all"
            )
        data[split] = AttributedImages(image, attribute, common, split == "train")
    return data, name


Parts = dict[str, tuple[np.ndarray, np.ndarray]]  # split -> images, and which attributes they have


def _faces(own: DataSettings, data_dir: str | None) -> tuple[str, Parts]:
    _, attribute = celeba.attributes(data_dir)
    faces = celeba.load("archive", data_dir, own.size, crop=False)
    ends = np.cumsum(faces.partitions)[:-1]
    parts = zip(np.split(faces.image, ends), np.split(attribute, ends))
    return faces.name, dict(zip(image_classes.SPLITS, parts))


def _classes(own: DataSettings, data_dir: str | None) -> tuple[str, Parts]:
    """Images of classes: that of an image is its one attribute."""
    found, parts = image_classes.load(own.source, data_dir, own.size), {}
    for split in image_classes.SPLITS:
        part = getattr(found, split)
        of_class, place = np.nonzero(part.member >= 0)
        attribute = np.zeros((len(part.image), len(part.names)), bool)
        attribute[part.member[of_class, place], of_class] = True
        parts[split] = part.image, attribute
    return found.name, parts
