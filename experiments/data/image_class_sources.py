"""Where the images of classes lie: one function for each layout of folders and lists, and the table of sources.

A function takes the folder of a data set and returns split -> name of a class -> its images. A bad folder or list
raises a DataError of one line; the images themselves are not opened here.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.data import digits
from experiments.data.errors import DataError
from experiments.harness.errors import first_line

SPLITS = ("train", "validation", "test")
SUFFIXES = (".jpeg", ".jpg", ".png")
_FILES = dict(zip(SPLITS, ("train", "val", "test")))  # what archives call the splits

Classes = dict[str, Sequence]  # name of a class -> its images: paths, or arrays [H, W]


def _ravi(folder: Path) -> dict[str, Classes]:
    """The 64/16/20 classes of Ravi and Larochelle 2017: {train,val,test}.csv list file names and labels."""
    return {split: _listed(folder / f"{file}.csv", folder / "images") for split, file in _FILES.items()}


def _eighty(folder: Path) -> dict[str, Classes]:
    """All classes of the three lists in one order, shuffled once: 80 % to train, 10 % to validate, 10 % to test.

    The Intention paper (Appendix 5) has 80/10/10 classes and does not say which; nobody's test classes are these.
    """
    together: Classes = {}
    for classes in _ravi(folder).values():
        if twice := together.keys() & classes:
            raise DataError(f"{folder}: class {min(twice)} is in two of its lists")
        together |= classes
    names = np.random.default_rng(0).permutation(sorted(together))
    tenth = len(names) // 10
    parts = (
        names[: len(names) - 2 * tenth],
        names[len(names) - 2 * tenth : len(names) - tenth],
        names[len(names) - tenth :],
    )
    return {split: {str(name): together[name] for name in part} for split, part in zip(SPLITS, parts)}


def _listed(path: Path, images: Path) -> Classes:
    """The classes of a list 'filename,label'."""
    rows = list(csv.DictReader(_text(path).splitlines()))
    if not rows or not {"filename", "label"} <= rows[0].keys():
        raise DataError(f"{path}: expected a first line with filename,label and one line for each image")
    classes: dict[str, list[Path]] = {}
    for number, row in enumerate(rows, start=2):
        if not row["filename"] or not row["label"]:
            raise DataError(f"{path}: line {number} has no filename or no label")
        classes.setdefault(row["label"], []).append(images / row["filename"])
    return classes


def _bertinetto(folder: Path) -> dict[str, Classes]:
    """The 64/16/20 classes of CIFAR-FS (Bertinetto et al. 2019): lists of the names of class folders."""
    lists = {split: _text(folder / "splits" / "bertinetto" / f"{file}.txt").split() for split, file in _FILES.items()}
    return {split: {name: _images(folder / "data" / name) for name in names} for split, names in lists.items()}


def _omniglot(folder: Path) -> dict[str, Classes]:
    """The official background alphabets (the last five validate, the others train); evaluation alphabets to test."""
    background, evaluation = (_tree(folder / f"images_{part}") for part in ("background", "evaluation"))
    held_out = sorted({name.split("/")[0] for name in background})[-5:]
    validation = {name: images for name, images in background.items() if name.split("/")[0] in held_out}
    train = {name: images for name, images in background.items() if name not in validation}
    return {"train": train, "validation": validation, "test": evaluation}


def _split_folders(folder: Path) -> dict[str, Classes]:
    return {split: _tree(folder / file) for split, file in _FILES.items()}


def _tree(root: Path) -> Classes:
    """Every folder below `root` that holds files is a class, named by its path from there."""
    if not root.is_dir():
        raise DataError(f"no folder {root}")
    below = sorted(path for path in root.rglob("*") if path.is_dir() and any(_files(path)))
    return {path.relative_to(root).as_posix(): _images(path) for path in below}


def _images(folder: Path) -> list[Path]:
    """The images in a folder."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}")
    files = sorted(_files(folder))
    for path in files:
        if path.suffix.lower() not in SUFFIXES:
            raise DataError(f"{path}: not an image ({', '.join(SUFFIXES)}) in a folder of a class")
    return files


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder; those whose names begin with a dot are left out."""
    return (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _digits(folder: None) -> dict[str, Classes]:
    """scikit-learn's handwritten digits: 0 to 3 train, 4 to 6 validate, 7 to 9 test."""
    data = digits.load()
    image, label = (np.concatenate([data.train[field], data.test[field]]) for field in ("image", "label"))
    parts = dict(zip(SPLITS, (range(4), range(4, 7), range(7, 10))))
    return {split: {str(digit): list(image[label == digit]) for digit in part} for split, part in parts.items()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or first_line(error)}") from error


class Source(NamedTuple):
    """Where images of classes come from, and what the whole data set is."""

    find: Callable[[Path | None], dict[str, Classes]]
    folder: str | None  # below --data_dir; None: no folder is needed
    channels: int  # 1: grey, 3: colours
    quote: str  # how to call the whole
    classes: tuple[int, ...]  # of the whole, in each split; () where no number is right or wrong
    per_class: int | None  # images of every class of the whole


SOURCES = {
    "mini_imagenet": Source(_ravi, "mini_imagenet", 3, "mini-ImageNet", (64, 16, 20), 600),
    "mini_imagenet_80": Source(_eighty, "mini_imagenet", 3, "mini-ImageNet, 80/10/10 classes", (80, 10, 10), 600),
    "cifar_fs": Source(_bertinetto, "cifar-fs", 3, "CIFAR-FS", (64, 16, 20), 600),
    "omniglot": Source(_omniglot, "omniglot", 1, "Omniglot", (813, 151, 659), 20),
    "folders": Source(_split_folders, "", 3, "images in folders", (), None),
    "digits": Source(_digits, None, 1, "scikit-learn's 8x8 digits", (4, 3, 3), None),
}
