"""EMNIST, 47 classes (Cohen et al. 2017): the `balanced` files or another split under their names, or by TFDS.

The originals, and TFDS after them, hold every image transposed; here all are upright. Classes 0 to 9 are the digits,
the others letters, of which some stand for capital and small ones alike.
"""

import numpy as np

from experiments.data import archive, idx, prepared
from experiments.data.dataset import SPLITS, DataSet, checked
from experiments.data.errors import DataError
from experiments.data.manifest import Manifest
from kvq_jax.names import choose

CLASSES = 47
_ORIGINAL = {"train": 2400, "test": 400}  # images of each class
EMNIST = Manifest(
    quote="EMNIST (balanced)",
    home="www.nist.gov/itl/products-and-services/emnist-dataset",
    image_shapes={split: [CLASSES * count, 28, 28] for split, count in _ORIGINAL.items()},
    folders=["emnist", "EMNIST/raw", "gzip", "."],
    files={
        split: {
            "image": [f"emnist-balanced-{split}-images-idx3-ubyte"],
            "label": [f"emnist-balanced-{split}-labels-idx1-ubyte"],
        }
        for split in SPLITS
    },
    tfds={
        "builder": "emnist/balanced",
        "fields": {"image": "image", "label": "label"},
        "splits": {"train": "train", "test": "test"},
    },
)


def load(source: str, data_dir: str | None) -> DataSet:
    """EMNIST, upright: images uint8 [n, 28, 28], labels 0..46.

    Args:
      source: 'archive', the IDX files in `data_dir`, with any number of images, for other splits than the official one
        go round; or 'tfds', prepared data in `data_dir` (None: TFDS's own folder).

    Raises DataError, one line, for an unknown source and for data that is missing, damaged or no EMNIST.
    """
    data = choose(SOURCES, source, f"source of {EMNIST.quote}", DataError)(data_dir)
    for fields in (data.train, data.test):
        fields["image"] = np.ascontiguousarray(fields["image"].transpose(0, 2, 1))
    return data


def quote(labels: dict[str, np.ndarray]) -> str:
    """How to quote labels {split: [n]}: 'EMNIST (balanced)' with 2400 and 400 images of each class, else by numbers."""
    counts = {split: np.bincount(labels[split], minlength=CLASSES) for split in SPLITS}
    if all((counts[split] == _ORIGINAL[split]).all() for split in SPLITS):
        return EMNIST.quote
    classes = np.count_nonzero(counts["train"] + counts["test"])
    return f"EMNIST ({classes} classes, {counts['train'].sum():,} + {counts['test'].sum():,} images, re-split)"


def _archive(data_dir: str | None) -> DataSet:
    archive.check_folder(EMNIST, data_dir)
    splits = {split: {} for split in SPLITS}
    for split in SPLITS:
        for field, names in EMNIST.files[split].items():
            path = archive.locate(names, EMNIST, data_dir)
            splits[split][field] = idx.read(path)
        label = splits[split]["label"]
        if label.dtype != np.uint8 or (label >= CLASSES).any():
            raise DataError(
                f"{path}: not EMNIST's {CLASSES} classes: labels are {label.dtype}, up to {label.max(initial=0)}"
            )
    shapes = {split: [len(splits[split]["image"]), 28, 28] for split in SPLITS}
    data = checked("EMNIST", splits, shapes, path.parent)
    return data._replace(name=quote({split: getattr(data, split)["label"] for split in SPLITS}))


# Name of a source -> function(data_dir) -> DataSet of transposed images.
SOURCES = {"archive": _archive, "tfds": lambda data_dir: prepared.load(EMNIST, data_dir)}
