"""CIFAR-100 and its subsets, from the binary files train.bin and test.bin, or as TensorFlow Datasets prepared it.

A record is 3074 bytes: the coarse label (0..19), the fine label (0..99), and 32x32 pixels by rows, first all red ones,
then green, then blue. A subset has the same records in smaller numbers; its name follows from what the files hold.
"""

import numpy as np

from experiments.data import archive, prepared
from experiments.data.dataset import SPLITS, DataSet, checked
from experiments.data.errors import DataError
from experiments.data.files import read_bytes
from experiments.data.manifest import Manifest
from kvq_jax.names import choose

CIFAR_100 = Manifest(
    quote="CIFAR-100",
    home="www.cs.toronto.edu/~kriz/cifar.html",
    image_shapes={"train": [50_000, 32, 32, 3], "test": [10_000, 32, 32, 3]},
    folders=["cifar-100-binary", "cifar100", "."],
    files={split: [f"{split}.bin"] for split in SPLITS},
    tfds={
        "builder": "cifar100",
        "fields": {"image": "image", "label": "label"},
        "splits": {"train": "train", "test": "test"},
    },
)
COARSE, CLASSES, RECORD = 20, 100, 2 + 3 * 32 * 32
_ORIGINAL = {"train": 500, "test": 100}  # images of each class


def load(source: str, data_dir: str | None) -> DataSet:
    """CIFAR-100 with its fine labels: images uint8 [n, 32, 32, 3].

    Args:
      source: 'archive', the files in `data_dir` or its folder cifar-100-binary; or 'tfds', prepared data in `data_dir`
        (None: TFDS's own folder).

    Raises DataError, one line, for an unknown source and for data that is missing, damaged or no CIFAR-100.
    """
    return choose(SOURCES, source, f"source of {CIFAR_100.quote}", DataError)(data_dir)


def quote(labels: dict[str, np.ndarray]) -> str:
    """How to quote fine labels {split: [n]}: 'CIFAR-100' with 500 and 100 images of each class, else by their numbers.

    'CIFAR-100 (240/60 subset)' has 240 training and 60 test images of each class; where classes differ in number, all
    images are counted.
    """
    counts = {split: np.bincount(labels[split], minlength=CLASSES) for split in SPLITS}
    if all((counts[split] == _ORIGINAL[split]).all() for split in SPLITS):
        return CIFAR_100.quote
    if all(np.ptp(counts[split]) == 0 for split in SPLITS):
        return f"{CIFAR_100.quote} ({counts['train'][0]}/{counts['test'][0]} subset)"
    return f"{CIFAR_100.quote} ({counts['train'].sum()}/{counts['test'].sum()} images in all, subset)"


def decode(raw: bytes, path) -> dict[str, np.ndarray]:
    """{'image': uint8 [n, 32, 32, 3], 'label': int32 [n], 'coarse': uint8 [n]} of the records `raw` of file `path`.

    Raises DataError, naming `path`, for bytes that are not whole records, and for labels out of range.
    """
    if not raw or len(raw) % RECORD:
        raise DataError(f"{path}: {len(raw)} bytes are no whole number of CIFAR-100 records ({RECORD} bytes each)")
    records = np.frombuffer(raw, np.uint8).reshape(-1, RECORD)
    coarse, fine = records[:, 0], records[:, 1]
    if coarse.max() >= COARSE or fine.max() >= CLASSES:
        raise DataError(f"{path}: not CIFAR-100: coarse labels go to {coarse.max()}, fine labels to {fine.max()}")
    image = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return {"image": np.ascontiguousarray(image), "label": fine.astype(np.int32), "coarse": coarse}


def _archive(data_dir: str | None) -> DataSet:
    archive.check_folder(CIFAR_100, data_dir)
    splits = {}
    for split in SPLITS:
        path = archive.locate(CIFAR_100.files[split], CIFAR_100, data_dir)
        splits[split] = decode(read_bytes(path), path)
    _check_hierarchy(splits, path.parent)
    shapes = {split: list(splits[split]["image"].shape) for split in SPLITS}
    name = quote({split: splits[split]["label"] for split in SPLITS})
    return checked(name, splits, shapes, path.parent)


def _check_hierarchy(splits: dict, folder) -> None:
    """Raises DataError unless both splits have every class, and every coarse label has its own five classes."""
    fine = np.concatenate([splits[split]["label"] for split in SPLITS])
    coarse = np.concatenate([splits[split]["coarse"] for split in SPLITS])
    pairs = np.unique(np.stack([coarse, fine], -1), axis=0)
    for split in SPLITS:
        present = len(np.unique(splits[split]["label"]))
        if present < CLASSES:
            raise DataError(f"{folder}: the {split} images are of {present} of {CLASSES} classes")
    if len(pairs) != CLASSES or (np.bincount(pairs[:, 0]) != CLASSES // COARSE).any():
        raise DataError(f"{folder}: coarse and fine labels do not fit each other as those of CIFAR-100 do")


# Name of a source -> function(data_dir) -> DataSet.
SOURCES = {"archive": _archive, "tfds": lambda data_dir: prepared.load(CIFAR_100, data_dir)}
