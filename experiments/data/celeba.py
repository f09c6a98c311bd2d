"""CelebA's aligned faces (Liu et al. 2015) in the official partitions: JPEG files, their zip archive, or by TFDS.

`list_eval_partition.txt` says of every image whether it trains (0), validates (1) or tests (2). Beside it lies the
folder img_align_celeba or img_align_celeba.zip, which is read without unpacking. Images that are not listed are left
out, so that a shorter list makes a subset; its name follows from what is listed.
"""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.data import archive, prepared
from experiments.data.errors import DataError
from experiments.data.files import find, read_bytes
from experiments.data.image_files import ImageFiles, images, readable
from experiments.data.manifest import Manifest
from experiments.harness.errors import first_line
from kvq_jax.names import choose

PIXELS = 178, 218  # width and height of an image
_ORIGINAL = (162_770, 19_867, 19_962)  # images of each partition
_LIST, _IMAGES, _ATTRIBUTES = "list_eval_partition.txt", "img_align_celeba", "list_attr_celeba.txt"
_TFDS_SPLITS = ("train", "validation", "test")
CELEBA = Manifest(
    quote="CelebA",
    home="mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    folders=["celeba", "."],
    tfds={"builder": "celeb_a", "fields": {"image": "image"}, "splits": dict(zip(_TFDS_SPLITS, _TFDS_SPLITS))},
)


class Faces(NamedTuple):
    """Images uint8 [n, size, size, 3], first those of partition 0, then 1, then 2, and how many each partition has."""

    name: str
    image: np.ndarray
    partitions: tuple[int, int, int]


def load(source: str, data_dir: str | None, size: int, crop: bool) -> Faces:
    """CelebA at `size` x `size` pixels, see image_files.resized.

    Args:
      source: 'archive', the files in `data_dir` or its folder celeba; or 'tfds', prepared data in `data_dir` (None:
        TFDS's own folder).

    Raises DataError, one line, for an unknown source; for a list or image that is missing or damaged; for a list with
    an image twice or a partition without images.
    """
    files, partitions = choose(SOURCES, source, f"source of {CELEBA.quote}", DataError)(data_dir)
    return Faces(quote(partitions), images(files, sum(partitions), size, crop), partitions)


def attributes(data_dir: str | None) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of attributes, and which of them an image has, bool [n, names], in the order of `load('archive', ...)`.

    They are in list_attr_celeba.txt: the number of its images, a line of names, and lines 'image 1 -1 ...'. Raises
    DataError, one line, for a list that is missing or damaged, or lacks an image of the partitions.
    """
    archive.check_folder(CELEBA, data_dir)
    listed = [name for part in _partitions(archive.locate([_LIST], CELEBA, data_dir)) for name in part]
    path = archive.locate([_ATTRIBUTES], CELEBA, data_dir)
    _, head, *lines = [*read_bytes(path).decode("ascii", "replace").splitlines(), "", ""]
    names, rows = tuple(head.split()), {}
    for number, line in enumerate(lines, start=3):
        image, *values = line.split() or [""]
        if image and (len(values) != len(names) or not names or not set(values) <= {"1", "-1"}):
            raise DataError(
                f"{path}: line {number}: expected an image and {len(names)} times 1 or -1, got {line[:80]!r}"
            )
        rows[image] = values
    absent = [name for name in listed if name not in rows]
    if absent:
        raise DataError(f"{path}: lacks {len(absent):,} of {len(listed):,} images: {absent[0]} is the first")
    return names, np.array([rows[name] for name in listed]) == "1"


def quote(partitions: tuple[int, int, int]) -> str:
    """'CelebA' where all its images are in their partitions, else e.g. 'CelebA (3,000-image subset)'."""
    return CELEBA.quote if partitions == _ORIGINAL else f"{CELEBA.quote} ({sum(partitions):,}-image subset)"


Found = tuple[ImageFiles, tuple[int, int, int]]


def _archive(data_dir: str | None) -> Found:
    archive.check_folder(CELEBA, data_dir)
    path = archive.locate([_LIST], CELEBA, data_dir)
    parts = _partitions(path)
    listed = [name for part in parts for name in part]
    place = find([_IMAGES, f"{_IMAGES}.zip"], [path.parent])
    if place is None:
        raise DataError(f"no folder {_IMAGES} and no {_IMAGES}.zip beside {path}")
    sizes, read = _folder(place) if place.is_dir() else _zip(place)
    absent = [name for name in listed if name not in sizes]
    if absent:
        raise DataError(
            f"{path}: lists {len(listed):,} images, {place} lacks {len(absent):,}: {absent[0]} is the first"
        )
    contents = [f"{name} {sizes[name]}" for name in listed]
    files = ImageFiles(CELEBA.quote, path.parent, PIXELS, contents, lambda number: read(listed[number]))
    return files, tuple(map(len, parts))


def _partitions(path: Path) -> list[list[str]]:
    """The names of images in partitions 0, 1 and 2, as the list has them in lines 'name partition'."""
    parts, seen = ([], [], []), set()
    for number, line in enumerate(read_bytes(path).decode("ascii", "replace").splitlines(), start=1):
        name, _, part = line.strip().partition(" ")
        if part.strip() not in {"0", "1", "2"}:
            raise DataError(f"{path}: line {number}: expected the name of an image and 0, 1 or 2, got {line[:80]!r}")
        if name in seen:
            raise DataError(f"{path}: line {number}: {name} is listed twice")
        seen.add(name)
        parts[int(part)].append(name)
    for number, part in enumerate(parts):
        if not part:
            raise DataError(f"{path}: lists no image of partition {number}")
    return list(parts)


Reader = Callable[[str], tuple[str, bytes]]


def _folder(folder: Path) -> tuple[dict[str, int], Reader]:
    """{name of a file: its bytes}, and a function that reads one."""

    def read(name):
        path = folder / name
        with readable(path):
            return str(path), path.read_bytes()

    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}, read


def _zip(path: Path) -> tuple[dict[str, int], Reader]:
    """The same of an archive, in whose folders the files may lie."""
    try:
        packed = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as a zip archive: {first_line(error)}") from error
    members = {Path(member.filename).name: member for member in packed.infolist() if not member.is_dir()}

    def read(name):
        where = f"{path}: {name}"
        with readable(where):
            return where, packed.read(members[name])

    return {name: member.file_size for name, member in members.items()}, read


def _tfds(data_dir: str | None) -> Found:
    import tensorflow_datasets as tfds  # half a second: only where it is used

    folder, builder = prepared.opened(CELEBA, data_dir)
    with prepared.readable(folder, CELEBA, data_dir):
        encoded = {"image": tfds.decode.SkipDecoding()}
        parts = [builder.as_data_source(split, decoders=encoded) for split in _TFDS_SPLITS]
    places = [(part, number) for part in parts for number in range(len(part))]

    def read(number):
        part, own = places[number]
        with prepared.readable(folder, CELEBA, data_dir):
            return f"{folder}: image {number}", part[own]["image"]

    shards = sorted(path for path in folder.iterdir() if ".array_record" in path.name)
    contents = [f"{path.name} {path.stat().st_size}" for path in shards]
    return ImageFiles(CELEBA.quote, folder, PIXELS, contents, read), tuple(map(len, parts))


# Name of a source -> function(data_dir) -> files, and how many images each partition has.
SOURCES = {"archive": _archive, "tfds": _tfds}
