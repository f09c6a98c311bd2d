"""Manifests: one JSON file per data set says what its original files are called and what is in them.

A manifest holds
    quote         how to quote the data set, e.g. 'MNIST'
    home          where its originals are published, for the message about a missing file
    image_shapes  {'train': [n, H, W], 'test': [n, H, W]}
    folders       where to look, relative to --data_dir, in this order
    files         the IDX files, {split: {field: file}}, with a file being
                  {'names': accepted names, each also with .gz, 'size': bytes, 'sha256': hex digest},
                  size and digest of the *uncompressed* bytes, so that they hold for any compression of the file
    tfds          {'builder': name, 'fields': {ours: theirs}, 'splits': {ours: theirs}}
"""

import dataclasses
import json
import pathlib

from experiments.data.errors import DataError
from kvq_jax.names import unknown

FOLDER = pathlib.Path(__file__).with_name("manifests")


@dataclasses.dataclass(frozen=True)
class Manifest:
    """One data set; see the module for its fields."""

    quote: str
    home: str
    folders: list
    tfds: dict
    image_shapes: dict = dataclasses.field(default_factory=dict)
    files: dict = dataclasses.field(default_factory=dict)


def names() -> list[str]:
    """The data sets that have a manifest, e.g. ['mnist']."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def read(name: str, source: str) -> Manifest:
    """The manifest of data set `name`. Raises DataError where `source` is asked for a name that has none."""
    if name not in names():
        raise DataError(unknown(f"data set of source {source!r}", name, names()))
    return Manifest(**json.loads((FOLDER / f"{name}.json").read_text()))
