"""Amortised clustering of features of images (Set Transformer, Section 5.3): sets of four classes of CIFAR-100.

Everything but the data is as in experiments/set_transformer/clustering. The oracle is the mixture with the moments of
the classes, since no mixture is true of features.

Those of CIFAR-100 are meant to be by an encoder (experiments/set_transformer/encoder) that was told the classes of the
training images, and of no test image. With test_images='train', as in the paper, all sets are of the training images: a
test set is one that was not drawn before, of images that were, and whose classes the encoder was told. With 'test',
ours, the network is trained on the same, and its test sets are of test images, of which nobody was told a class. The
clustering itself is never told one: it maximises the likelihood of features.
"""

import dataclasses
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from experiments.data import cifar, image_features, sources
from experiments.data.dataset import SPLITS
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.experiment import DATA, NO_DATA, Experiment
from experiments.set_transformer.clustering.experiment import clustering
from experiments.tasks.labelled_features import Features, LabelledFeatures

SECTIONS = ("task", "data", "model")


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    name: str  # a key of SETS
    source: str  # of the images: 'archive' or 'tfds', 'digits' of digits
    file: str  # of features, absolute or relative to --data_dir; not used by digits
    test_images: str  # 'train': test sets are of training images; 'test': of those that no encoder was trained on

    def __post_init__(self):
        settings.choose(dict.fromkeys(SPLITS), self.test_images, "test_images")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(LabelledFeatures, config.task, "config.task")
    own = settings.build(DataSettings, config.data, "config.data")
    found, facts = settings.choose(SETS, own.name, "config.data.name")(own, data_dir)
    splits = {split: _scaled(*found[split], found["train"][0]) for split in ("train", own.test_images)}
    for features in splits.values():
        _check_sizes(task, features)
    data = dict.fromkeys(NO_DATA, splits["train"]) | {"test": splits[own.test_images]}
    made = clustering(task, splits["train"].feature.shape[1], config, evaluation, data=data, facts=facts)

    def examples(*arguments):
        found = made.examples(*arguments)
        return {f"{DATA}x" if name == "x" else name: array for name, array in found.items()}

    return dataclasses.replace(made, examples=examples)


def _cifar100(own: DataSettings, data_dir: str | None) -> tuple[dict[str, tuple], dict]:
    """Split -> features [n, d] and labels [n] of its images; facts for result.json. Raises DataError."""
    data = cifar.load(own.source, data_dir)
    made = image_features.read(Path(data_dir or "", own.file), data)
    parts = {split: (made.features[split], getattr(data, split)["label"]) for split in SPLITS}
    told = {"data": data.name, "features": made.provenance["network"]}
    return parts, told | {key: made.provenance[key] for key in ("trained",) if key in made.provenance}


def _digits(own: DataSettings, data_dir: str | None) -> tuple[dict[str, tuple], dict]:
    """As _cifar100, of the pixels of all of scikit-learn's digits at once. Raises ConfigError."""
    if own.test_images != "train":
        raise ConfigError("config.data.test_images: digits have no images apart, expected 'train', not 'test'")
    data = sources.load("digits", own.source, data_dir)
    image, label = (np.concatenate([data.train[field], data.test[field]]) for field in ("image", "label"))
    return {"train": (image.reshape(len(image), -1), label)}, {"data": data.name, "features": "pixels"}


# Name of a data set -> function(settings, data_dir) -> parts, facts.
SETS = {"cifar100": _cifar100, "digits": _digits}


def _scaled(feature: np.ndarray, label: np.ndarray, training: np.ndarray) -> Features:
    """Features by class, less the mean of the training ones, divided by the one number that gives those variance 1."""
    mean = training.mean(0, dtype=np.float64)
    feature = (feature - mean) / np.sqrt(((training - mean) ** 2).mean())
    own = [np.flatnonzero(label == number) for number in np.unique(label)]
    largest = max(map(len, own))
    member = np.stack([np.append(rows, np.full(largest - len(rows), -1)) for rows in own])
    return Features(np.float32(feature), np.int32(member))


def _check_sizes(task: LabelledFeatures, features: Features) -> None:
    """Raises ConfigError where some classes that a set may have are too few or too small for it."""
    counts = np.sort((features.member >= 0).sum(1))
    if len(counts) < task.clusters:
        raise ConfigError(f"config.task.clusters: {task.clusters} of {len(counts)} classes")
    fewest = counts[: task.clusters].sum()
    if fewest < task.max_size:
        raise ConfigError(
            f"config.task.max_size: {task.max_size} of {task.clusters} classes with {fewest} images in all"
        )
