"""The classes of images, to train the encoder whose features are clustered (Set Transformer, Section 5.3, CIFAR-100).

The paper trains a VGG on CIFAR-100, of which it says no more than its test accuracy, and clusters the 512 features
before the last layer. `scripts.prepare_data embed --weights RUN` writes the features of what is trained here into the
file that set_transformer/features reads.

What the encoder sees: the official training images and their classes, but for a share that validates. The official test
images are for its accuracy alone, all of them, each once. No label of theirs reaches any parameter.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from experiments.data.sources import CLASSIFIED
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.experiment import Experiment
from experiments.set_transformer.splits import hold_out
from experiments.tasks.labelled_images import Classified, LabelledImages
from kvq_jax.domains import Count, Share
from kvq_jax.models import IMAGE_CLASSIFIERS
from kvq_jax.nn.resnet import imagenet_input

SECTIONS = ("task", "data", "model")


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    name: str  # a key of sources.CLASSIFIED
    source: str  # of the images: 'archive' or 'tfds', 'digits' of digits
    validation_fraction: Share  # of the training images


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What this experiment adds to the config's `evaluation` section."""

    batch_size: Count  # test images at once


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(Classified, config.task, "config.task")
    model = settings.build_named(IMAGE_CLASSIFIERS, config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    data, facts = _load(settings.build(DataSettings, config.data, "config.data"), data_dir)
    if model.classes != facts["classes"]:
        raise ConfigError(
            f"config.model.classes: {model.classes} for the {facts['classes']} classes of {facts['data']}"
        )
    height = data["train"].image.shape[1]

    def init(key):
        return model.lazy_init(key, jax.ShapeDtypeStruct((1, height, height, 3), jnp.float32))

    def judged(variables, images):
        """Whether each image is classified rightly, its cross-entropy, its class, and updated collections."""
        options = dict(train=images.training, mutable=["batch_stats"] if images.training else [])
        (_, logits), collections = model.apply(variables, imagenet_input(images.image, height), **options)
        found = logits.argmax(-1)
        entropy = optax.softmax_cross_entropy_with_integer_labels(logits, images.label)
        return jnp.float32(found == images.label), entropy, found, collections

    def loss(variables, batch, key):
        right, entropy, _, collections = judged(variables, batch)
        return entropy.mean(), ({"accuracy": right.mean()}, collections)

    def of_test(variables, test):
        """accuracy, cross_entropy and class [n] of all test images."""

        def one(image_label):
            image, label = image_label
            return [values[0] for values in judged(variables, LabelledImages(image[None], label[None], False))[:3]]

        return jax.lax.map(one, (test.image, test.label), batch_size=evaluation.batch_size)

    def evaluate(variables, test, key):
        return dict(zip(("accuracy", "cross_entropy"), of_test(variables, test)))

    def examples(variables, test, key):
        return {"truth": test.label, "prediction": of_test(variables, test)[2]}

    return Experiment(init, task.sample, loss, evaluate, examples, data, facts, model=model)


def _load(own: DataSettings, data_dir: str | None) -> tuple[dict[str, LabelledImages], dict]:
    """The images of each split, and facts for result.json. Raises ConfigError and DataError."""
    found = settings.choose(CLASSIFIED, own.name, "config.data.name")(own.source, data_dir)
    parts = hold_out(own.validation_fraction, len(found.train["label"]), "images")
    parts = {split: (found.train, rows) for split, rows in parts.items()}
    parts["test"] = (found.test, np.arange(len(found.test["label"])))
    data = {
        split: LabelledImages(_coloured(of["image"][rows]), of["label"][rows], split == "train")
        for split, (of, rows) in parts.items()
    }
    images = {split: len(part.label) for split, part in data.items()}
    return data, {"data": found.name, "classes": int(found.train["label"].max()) + 1, "images": images}


def _coloured(image: np.ndarray) -> np.ndarray:
    """Images [n, H, W] of grey as images [n, H, W, 3]; those that have colours as they are."""
    return image if image.ndim == 4 else np.repeat(image[..., None], 3, -1)
