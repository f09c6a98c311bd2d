"""Images to complete, by name and source (CMANP paper, Section 4.1, Table 3).

    name     source          what it is
    celeba   archive, tfds   faces: trained on partitions 0 and 1, tested on partition 2
    emnist   archive, tfds   digits and letters: trained on some classes, tested on them and on all others
    mnist    archive, tfds   handwritten digits
    digits   digits          scikit-learn's 8x8 digits, enough for tests only

An image becomes `size` x `size` pixels by Pillow's bicubic filter, as in the published code. No resolution is made up:
larger than the original is refused, but for MNIST and EMNIST at 32, which the paper's text has (its code has 28).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

from experiments.data import celeba, emnist, sources
from experiments.data.errors import DataError
from experiments.data.image_files import resized
from kvq_jax.names import choose


class ImageSet(NamedTuple):
    """Images to complete, in host memory.

    name        how to quote it, e.g. 'CelebA (3,000-image subset)'
    train       uint8 [n, size, size, channels], channels 1 or 3
    validation  the same: images that were held out of those to train on
    test        name of a part -> the same: 'seen' and 'unseen' classes of EMNIST, 'test' of the others
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: dict[str, np.ndarray]


def load(
    name: str,
    source: str,
    data_dir: str | None,
    *,
    size: int,
    crop: bool,
    validation_images: int,
    seen: tuple[int, int],
) -> ImageSet:
    """The images of data set `name`, a key of SETS.

    Args:
      source: 'archive', the original files in `data_dir`; 'tfds', prepared data; 'digits'.
      size: pixels along each side.
      crop: take the central square of an image that is not square. Without, it is distorted, as published.
      validation_images: held out, the last of those to train on (of EMNIST's, which are shuffled once, always alike).
      seen: (first, last): EMNIST is trained on classes first to last - 1; not used by the others.

    Raises DataError, one line, for unknown names, sizes that the images cannot give, classes that are not there, no
    image in a part, and data that is missing, damaged or altered.
    """
    own = choose(SETS, name, "image set", DataError)
    if size not in own.sizes:
        sizes = " to ".join(map(str, sorted({own.sizes[0], own.sizes[-1]})))
        raise DataError(f"{name} at {size} pixels: a resolution that the data cannot give; its images give {sizes}")
    quoted, train, test = own.load(_Asked(name, source, data_dir, size, crop, seen))
    if not 0 < validation_images < len(train):
        raise DataError(f"validation_images={validation_images}, but {quoted} has {len(train)} images to train on")
    for part, images in test.items():
        if not len(images):
            raise DataError(f"{quoted} has no image for the part {part!r} of the test")
    return ImageSet(quoted, train[:-validation_images], train[-validation_images:], test)


class _Asked(NamedTuple):
    """Arguments of `load`, for the function of one data set."""

    name: str
    source: str
    data_dir: str | None
    size: int
    crop: bool
    seen: tuple[int, int]


Loaded = tuple[str, np.ndarray, dict[str, np.ndarray]]  # name, images to train on, part -> images to test on


def _labelled(asked: _Asked) -> Loaded:
    data = sources.load(asked.name, asked.source, asked.data_dir)
    return data.name, _grey(data.train["image"], asked.size), {"test": _grey(data.test["image"], asked.size)}


def _emnist(asked: _Asked) -> Loaded:
    first, last = asked.seen
    if not 0 <= first < last <= emnist.CLASSES:
        raise DataError(f"seen={asked.seen}: EMNIST has classes 0 to {emnist.CLASSES - 1}, and some must be trained on")
    data = emnist.load(asked.source, asked.data_dir)
    trained, known = ((first <= fields["label"]) & (fields["label"] < last) for fields in (data.train, data.test))
    train, test = data.train["image"][trained], data.test["image"]
    # A re-split may have the images of a class in a row; the last of them would be no sample to validate on.
    train = train[np.random.default_rng(0).permutation(len(train))]
    parts = {"seen": test[known], "unseen": test[~known]}
    return data.name, _grey(train, asked.size), {part: _grey(images, asked.size) for part, images in parts.items()}


def _celeba(asked: _Asked) -> Loaded:
    faces = celeba.load(asked.source, asked.data_dir, asked.size, asked.crop)
    first = sum(faces.partitions[:2])
    return faces.name, faces.image[:first], {"test": faces.image[first:]}


def _grey(images: np.ndarray, size: int) -> np.ndarray:
    """Square images [n, side, side] -> [n, size, size, 1]."""
    if images.shape[1:] == (size, size):
        return images[..., None]
    out = np.empty((len(images), size, size, 1), np.uint8)
    for image, place in zip(images, out):
        place[..., 0] = resized(Image.fromarray(image), size)
    return out


class Set(NamedTuple):
    """How a data set is loaded, and the sizes that its images can give."""

    load: Callable[[_Asked], Loaded]
    sizes: range


SETS = {
    "celeba": Set(_celeba, range(1, min(celeba.PIXELS) + 1)),
    "emnist": Set(_emnist, range(1, 33)),
    "mnist": Set(_labelled, range(1, 33)),
    "digits": Set(_labelled, range(8, 9)),
}
