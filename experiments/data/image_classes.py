"""Images of classes for few-shot learning, where training, validation and test have no class in common.

    source             what lies in --data_dir, or in its folder of the name given here
    mini_imagenet      mini_imagenet: images/ and train.csv, val.csv, test.csv
    mini_imagenet_80   the same images, in the paper's 80 + 10 + 10 classes
    cifar_fs           cifar-fs: data/<class>/*.png and splits/bertinetto/{train,val,test}.txt
    omniglot           omniglot: images_{background,evaluation}/<alphabet>/<character>/*.png
    folders            any others: {train,val,test}/**/<class>/*.png
    digits             needs no folder: scikit-learn's digits in 4 + 3 + 3 classes, enough for tests only

Images are decoded and resized once, when loaded, and kept as uint8; nothing is written. TensorFlow Datasets has no
builder of mini-ImageNet, so there is no source of that kind.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from experiments.data.errors import DataError
from experiments.data.files import inside
from experiments.data.image_class_sources import SOURCES, SPLITS, Classes, Source
from experiments.data.image_files import readable
from kvq_jax.names import choose


class Split(NamedTuple):
    """The images of some classes.

    image   uint8 [n, size, size, channels]
    member  int32 [classes, largest]: the images of each class, then -1 where it has fewer than the largest
    names   of the classes
    """

    image: np.ndarray
    member: np.ndarray
    names: tuple[str, ...]


class ImageClasses(NamedTuple):
    """Three splits of classes, and the `name` to quote them by, such as 'mini-ImageNet (70 per class)'."""

    name: str
    train: Split
    validation: Split
    test: Split


def load(source: str, data_dir: str | None, size: int, least: int = 1) -> ImageClasses:
    """The images of `source`, a key of SOURCES, at `size` x `size` pixels.

    data_dir  the folder of the data, or the one above it (digits: not used)
    least     how many images every class must have
    Raises DataError, one line, for an unknown source; for a folder, list or image that is missing or damaged; for a
    split without classes, a class with fewer than `least` images, and a class that is in two splits.
    """
    own = choose(SOURCES, source, "source of image classes", DataError)
    if own.folder is None:
        found = own.find(None)
    elif data_dir is None:
        raise DataError(f"source {source!r} reads a folder of images: pass --data_dir")
    else:
        with inside(data_dir, own.folder) as folder:
            found = own.find(folder)
    _check(source, found, least)
    return ImageClasses(_quoted(own, found), *(_split(found[split], size, own.channels) for split in SPLITS))


def _check(source: str, found: Mapping[str, Classes], least: int) -> None:
    owner: dict[str, str] = {}
    listed: set[Path] = set()
    for split, classes in found.items():
        if not classes:
            raise DataError(f"source {source!r} has no {split} classes")
        for name, images in classes.items():
            if name in owner:
                raise DataError(f"source {source!r}: class {name} is in {owner[name]} and in {split}")
            if len(images) < least:
                raise DataError(
                    f"source {source!r}: {split} class {name} has {len(images)} images, an episode takes {least}"
                )
            owner[name] = split
            for path in (image for image in images if isinstance(image, Path)):
                if path in listed:
                    raise DataError(f"source {source!r}: image {path} is listed twice")
                listed.add(path)


def _quoted(own: Source, found: Mapping[str, Classes]) -> str:
    """The name of the data set, with what distinguishes what was found from the whole."""
    counts = [len(images) for classes in found.values() for images in classes.values()]
    classes = tuple(len(found[split]) for split in SPLITS)
    notes = []
    if own.classes != classes:
        notes.append(f"{'/'.join(map(str, classes))} classes")
    if {own.per_class} != set(counts):
        few, many = min(counts), max(counts)
        notes.append(f"{few} per class" if few == many else f"{few} to {many} per class")
    return f"{own.quote} ({', '.join(notes)})" if notes else own.quote


def _split(classes: Classes, size: int, channels: int) -> Split:
    counts = np.array([len(images) for images in classes.values()])
    ends = np.cumsum(counts)
    place = np.arange(counts.max())
    member = np.where(place < counts[:, None], (ends - counts)[:, None] + place, -1)
    image = np.empty((ends[-1], size, size, channels), np.uint8)
    for number, one in enumerate(one for images in classes.values() for one in images):
        image[number] = _pixels(one, size, channels)
    return Split(image, member.astype(np.int32), tuple(classes))


def _pixels(image: Path | np.ndarray, size: int, channels: int) -> np.ndarray:
    """uint8 [size, size, channels] of a file or an array [H, W]. Pillow's bilinear filter averages where it shrinks."""
    with readable(image), Image.fromarray(image) if isinstance(image, np.ndarray) else Image.open(image) as opened:
        resized = opened.convert({1: "L", 3: "RGB"}[channels])
        if resized.size != (size, size):
            resized = resized.resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(resized).reshape(size, size, channels)
