"""Images for set anomaly detection: their source, their splits, and the features that the models see."""

import dataclasses
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from experiments.data import image_features
from experiments.data.dataset import SPLITS, DataSet
from experiments.data.errors import DataError
from experiments.data.sources import CLASSIFIED
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.tasks.anomaly import Images
from kvq_jax.domains import Count, Seed, Share


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The config's `data` section."""

    name: str  # a name of sources.CLASSIFIED
    source: str
    splits: str  # a name of SPLITTINGS
    validation_fraction: Share
    test_fraction: Share  # of the classes, where the splits are 'classes'
    seed: Seed  # of the splits


@dataclasses.dataclass(frozen=True)
class RawPixelsPCA:
    """Projections of the pixels on the principal components of the training images, all divided by the same number.

    Models train worse on whitened ones, where the faint details of the last components weigh as much as the first.
    """

    dimension: Count

    def __call__(self, data: DataSet, train: np.ndarray, data_dir: str | None) -> tuple[np.ndarray, dict]:
        """Data, indices of its training images -> features [n, dimension] of all images, facts for result.json."""
        from sklearn.decomposition import PCA  # a second: only where it is used

        pixels = _pooled(data, "image")
        pixels = pixels.reshape(len(pixels), -1).astype(np.float32) / 255
        if not 0 < self.dimension <= min(len(train), pixels.shape[1]):
            sizes = f"{pixels.shape[1]} pixels, {len(train)} training images"
            raise ConfigError(f"config.features.dimension: {self.dimension} of {sizes}")
        pca = PCA(self.dimension, svd_solver="randomized", random_state=0).fit(pixels[train])
        scale = np.sqrt(pca.explained_variance_.mean())
        return pca.transform(pixels) / scale, {"explained_variance": float(pca.explained_variance_ratio_.sum())}


@dataclasses.dataclass(frozen=True)
class ResNet34:
    """The features in a file that `scripts.prepare_data embed` wrote with the ImageNet weights of a ResNet-34."""

    file: str  # absolute, or relative to --data_dir

    def __call__(self, data: DataSet, train: np.ndarray, data_dir: str | None) -> tuple[np.ndarray, dict]:
        """As RawPixelsPCA, but `train` is not used. Raises DataError for the file of another network."""
        path = Path(data_dir or "", self.file)
        made = image_features.read(path, data)
        if made.provenance["network"] != "ResNet-34":
            raise DataError(f"{path} has features by {made.provenance['network']}, not by ResNet-34")
        return np.concatenate([made.features[split] for split in SPLITS]), made.provenance


FEATURES = {"raw_pixels_pca": RawPixelsPCA, "resnet34": ResNet34}


def load(config: ConfigDict, data_dir: str | None) -> tuple[dict[str, Images], dict]:
    """The images of each split, by the config's sections `data` and `features`, and facts for result.json.

    The facts are the name of the data, the images and classes of each split, and the origin of the features.
    Raises ConfigError and DataError.
    """
    section = settings.build(DataSettings, config.data, "config.data")
    features = settings.build_named(FEATURES, config.features, "config.features")
    data = settings.choose(CLASSIFIED, section.name, "config.data.name")(section.source, data_dir)
    parts = settings.choose(SPLITTINGS, section.splits, "config.data.splits")(section, data)
    if not len(parts["train"]):
        raise ConfigError("config.data.validation_fraction: leaves no image to train on")
    feature, made = features(data, parts["train"], data_dir)
    label = _pooled(data, "label")
    splits = {name: images(feature[part], label[part], training=name == "train") for name, part in parts.items()}
    splits["test"] = splits["test"].replace(image=_pooled(data, "image")[parts["test"]])
    counts = {name: {"images": len(part), "classes": len(np.unique(label[part]))} for name, part in parts.items()}
    return splits, {"data": data.name, "splits": counts, "features": made}


def images(feature: np.ndarray, label: np.ndarray, training: bool) -> Images:
    """The Images of a split from features [n, d] and labels [n]. Labels are any numbers. The pictures are left out."""
    _, label, count = np.unique(label, return_inverse=True, return_counts=True)
    members = np.zeros((len(count), count.max()), np.int32)
    for number, size in enumerate(count):
        own = np.flatnonzero(label == number)
        members[number] = np.append(own, np.full(count.max() - size, own[0]))
    return Images(np.float32(feature), np.int32(label), members, np.int32(count), None, training)


def _stratified(section: DataSettings, data: DataSet) -> dict[str, np.ndarray]:
    """The official test images test. A fraction of the training images of each class validates."""
    rng, label = np.random.default_rng(section.seed), data.train["label"]
    held_out = []
    for number in np.unique(label):
        own = rng.permutation(np.flatnonzero(label == number))
        held_out.append(own[: max(1, round(section.validation_fraction * len(own)))])
    validation = np.sort(np.concatenate(held_out))
    train = np.setdiff1d(np.arange(len(label)), validation)
    return {"train": train, "validation": validation, "test": len(label) + np.arange(len(data.test["label"]))}


def _by_class(section: DataSettings, data: DataSet) -> dict[str, np.ndarray]:
    """Splits the classes of all images: a fraction of them tests, and a fraction of the others validates."""
    label = _pooled(data, "label")
    order = np.random.default_rng(section.seed).permutation(np.unique(label))
    tested = max(2, round(section.test_fraction * len(order)))
    held_out = max(2, round(section.validation_fraction * (len(order) - tested)))
    classes = dict(zip(("test", "validation", "train"), np.split(order, [tested, tested + held_out])))
    return {name: np.flatnonzero(np.isin(label, classes[name])) for name in ("train", "validation", "test")}


# Two readings of "splits are done over labels" (Intention paper, Appendix 8).
# Name -> function(settings, data) -> indices of each split's images, counted over training images, then test images.
SPLITTINGS = {"stratified": _stratified, "classes": _by_class}


def _pooled(data: DataSet, field: str) -> np.ndarray:
    """The training images or labels, followed by the test ones."""
    return np.concatenate([getattr(data, split)[field] for split in SPLITS])
