"""Few-shot classification of images (Intention paper, Section 5.2, Appendix 5; Tables 1 and 2, Figure 14).

A model sees a few labelled images of new classes, and says to which of these classes other images belong. It is trained
on episodes of training classes and evaluated by its accuracy on episodes of test classes, the same for every model.
"""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.data import image_classes
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.tasks.episodes import Episode, Episodes, Images
from kvq_jax.domains import Count
from kvq_jax.models import CLASSIFIERS
from kvq_jax.models.few_shot_classifiers import LOSSES
from kvq_jax.nn import ENCODERS

SECTIONS = ("task", "data", "encoder", "model")


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    source: str  # a key of image_classes.SOURCES
    size: Count  # images are resized to size x size pixels


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(Episodes, config.task, "config.task")
    encoder = settings.build_named(ENCODERS, config.encoder, "config.encoder")
    model = settings.build_named(CLASSIFIERS, config.model, "config.model", encoder=encoder)
    evaluation = settings.build(TaskEvaluation, evaluation, "config.evaluation")
    found = _load(config.data, task, data_dir)
    parts = {split: getattr(found, split) for split in image_classes.SPLITS}
    data = {split: Images(part.image, part.member, training=split == "train") for split, part in parts.items()}

    def apply(variables, episode: Episode, key=None):
        """Scores [..., M, way], and the collections that a training step updates."""
        context, target = (jnp.float32(image) / 255 for image in (episode.context_image, episode.target_image))
        options = dict(mutable=["batch_stats"], rngs={"dropout": key}) if episode.training else dict(mutable=[])
        return model.apply(variables, context, episode.context_label, target, episode.training, **options)

    def init(key):
        shape = jax.eval_shape(task.sample, key, data["train"])
        images = (shape.context_image, shape.target_image)
        context, target = (jax.ShapeDtypeStruct(image.shape, jnp.float32) for image in images)
        return model.lazy_init(key, context, shape.context_label, target)  # encodes and adapts nothing

    def loss(variables, batch, key):
        scores, collections = apply(variables, batch, key)
        metrics = {"accuracy": accuracy(scores, batch.target_label).mean()}
        return LOSSES[model.loss](scores, batch.target_label), (metrics, collections)

    def evaluate(variables, test, key):
        def one(task_key):
            episode = task.sample(task_key, test)
            return {"accuracy": accuracy(apply(variables, episode)[0], episode.target_label)}

        return over_tasks(one, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            episode = task.sample(task_key, test)
            images = {"context_image": episode.context_image, "target_image": episode.target_image}
            labels = {name: getattr(episode, name).argmax(-1) for name in ("context_label", "target_label")}
            return images | labels | {"prediction": apply(variables, episode)[0].argmax(-1)}

        return over_tasks(one, key, evaluation.example_tasks, evaluation.example_tasks)

    facts = {"data": found.name, "classes": {split: len(part.names) for split, part in parts.items()}}
    return Experiment(init, task.sample, loss, evaluate, examples, data, facts, model=model)


def accuracy(scores: jax.Array, label: jax.Array) -> jax.Array:
    """The share of targets whose largest score is that of their label: [..., M, way] twice -> [...]."""
    return jnp.mean(scores.argmax(-1) == label.argmax(-1), -1)


def _load(section: ConfigDict, task: Episodes, data_dir: str | None) -> image_classes.ImageClasses:
    data = settings.build(DataSettings, section, "config.data")
    found = image_classes.load(data.source, data_dir, data.size, least=task.shot + task.query)
    for split in image_classes.SPLITS:
        classes = len(getattr(found, split).names)
        if classes < task.way:
            wrong = f"an episode has {task.way} classes, {found.name} has {classes} for {split}"
            raise ConfigError(f"config.task.way: {wrong}")
    return found
