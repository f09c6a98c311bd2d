"""How many different characters are in a set of images (Set Transformer, Section 5.2, Table 2, Figure 3).

The network gives the rate of a Poisson distribution, as softplus of its output, and is trained on the likelihood of the
number. It is right where the mode, the largest integer not above the rate, is that number. Training, validation and
test have no character in common.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.data import image_classes
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.set_transformer.networks import network, training
from experiments.tasks.counting import Counting
from experiments.tasks.episodes import Images
from kvq_jax.domains import Count
from kvq_jax.models import IMAGE_SET_NETWORKS

SECTIONS = ("task", "data", "model")
_PICTURES = 4  # sets whose images are kept for the figure


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    source: str  # a key of image_classes.SOURCES
    size: Count  # images are resized to size x size pixels
    rotations: bool  # training characters turned by 90, 180 and 270 degrees are further training characters


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(Counting, config.task, "config.task")
    model = network(config, IMAGE_SET_NETWORKS)
    evaluation = settings.build(TaskEvaluation, evaluation, "config.evaluation")
    data, facts = _load(config.data, task, data_dir)

    def rate(variables, sets):
        """The rate [...] of each set, and the collections that a training step updates."""
        options = dict(train=sets.training, mutable=["batch_stats"] if sets.training else [])
        rows, collections = model.apply(variables, jnp.float32(sets.x) / 255, mask=sets.mask, **options)
        return jax.nn.softplus(rows[..., 0, 0]), collections

    def loss(variables, batch, key):
        found, collections = rate(variables, batch)
        number = batch.truth
        return -log_likelihood(found, number).mean(), ({"accuracy": is_right(found, number).mean()}, collections)

    def evaluate(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            found, number = rate(variables, sampled)[0], sampled.truth
            return {"accuracy": is_right(found, number), "log_likelihood": log_likelihood(found, number)}

        return over_tasks(one, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            told = {"size": sampled.mask.sum(), "truth": sampled.truth}
            return told | {"image": sampled.x, "prediction": rate(variables, sampled)[0]}

        found = over_tasks(one, key, evaluation.example_tasks, evaluation.batch_size)
        return found | {"image": found["image"][:_PICTURES]}

    trained = training(model, task, data["train"].image.shape[1:], config.train.size_classes, data)
    return Experiment(loss=loss, evaluate=evaluate, examples=examples, facts=facts, model=model, **trained)


def log_likelihood(rate: jax.Array, number: jax.Array) -> jax.Array:
    """log of Poisson's probability of `number` at a positive rate, [...]."""
    return number * jnp.log(rate) - rate - jax.lax.lgamma(number + 1.0)


def is_right(rate: jax.Array, number: jax.Array) -> jax.Array:
    """1 where the mode of Poisson's distribution is the number, else 0, [...]."""
    return jnp.float32(jnp.floor(rate) == number)


def rotated(part: image_classes.Split) -> image_classes.Split:
    """The classes of a split, and as further classes those of its images turned by 90, 180 and 270 degrees."""
    turns, images = range(4), len(part.image)
    member = [np.where(part.member >= 0, part.member + turn * images, -1) for turn in turns]
    image = [np.rot90(part.image, turn, axes=(1, 2)) for turn in turns]
    names = tuple(f"{name}, {90 * turn} degrees" for turn in turns for name in part.names)
    return image_classes.Split(np.concatenate(image), np.concatenate(member).astype(np.int32), names)


def _load(section: ConfigDict, task: Counting, data_dir: str | None) -> tuple[dict[str, Images], dict]:
    """The images of each split, and facts for result.json. Raises ConfigError and DataError."""
    own = settings.build(DataSettings, section, "config.data")
    found = image_classes.load(own.source, data_dir, own.size, least=task.max_size)
    splits = {split: getattr(found, split) for split in image_classes.SPLITS}
    for split, part in splits.items():
        if len(part.names) < task.max_size:
            raise ConfigError(
                f"config.task.max_size: a set may have {task.max_size} characters, {found.name} has "
                f"{len(part.names)} for {split}"
            )
    if own.rotations:
        splits["train"] = rotated(splits["train"])
    data = {split: Images(part.image, part.member, split == "train") for split, part in splits.items()}
    classes = {split: len(part.names) for split, part in splits.items()}
    return data, {"data": found.name, "characters": classes}
