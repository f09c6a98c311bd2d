"""A tiny data set in the MNIST family's format, with its manifest, for tests to copy, damage and read."""

import gzip
import hashlib
import pathlib
from typing import NamedTuple

import numpy as np
import pytest

from experiments.data.manifest import Manifest
from tests.experiments.data.image_archives import idx_bytes, write_faces, write_letters

NAMES = {
    "train": {"image": "train-images-idx3-ubyte", "label": "train-labels-idx1-ubyte"},
    "test": {"image": "t10k-images-idx3-ubyte", "label": "t10k-labels-idx1-ubyte"},
}
SIZES = {"train": 6, "test": 4}


class Tiny(NamedTuple):
    arrays: dict  # {split: {field: uint8 array}}
    manifest: Manifest
    contents: dict  # {file name: uncompressed bytes}

    def write(self, folder: pathlib.Path, rename=lambda name: name, compress=False) -> pathlib.Path:
        """Lays the four files out in `folder` and returns it."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, raw in self.contents.items():
            name = rename(name) + (".gz" if compress else "")
            (folder / name).write_bytes(gzip.compress(raw) if compress else raw)
        return folder


@pytest.fixture
def tiny() -> Tiny:
    """Six training and four test images of 5x3 pixels."""
    rng = np.random.default_rng(0)
    arrays, contents, files = {}, {}, {}
    for split, n in SIZES.items():
        arrays[split] = {
            "image": rng.integers(0, 256, (n, 5, 3), dtype=np.uint8),
            "label": rng.integers(0, 10, n, dtype=np.uint8),
        }
        for field, array in arrays[split].items():
            name, raw = NAMES[split][field], idx_bytes(array)
            contents[name] = raw
            files.setdefault(split, {})[field] = {
                "names": [name, name.replace("-idx", ".idx")],
                "size": len(raw),
                "sha256": hashlib.sha256(raw).hexdigest(),
            }
    manifest = Manifest(
        quote="Tiny",
        home="example.org/tiny",
        image_shapes={split: [n, 5, 3] for split, n in SIZES.items()},
        folders=["tiny", "."],
        files=files,
        tfds={"builder": "tiny", "fields": {}, "splits": {}},
    )
    return Tiny(arrays, manifest, contents)


@pytest.fixture
def letters(tmp_path) -> pathlib.Path:
    """DATA/emnist with two training images and a test image of each class."""
    return write_letters(tmp_path / "emnist")


@pytest.fixture
def faces(tmp_path) -> pathlib.Path:
    """DATA/celeba with nine images."""
    return write_faces(tmp_path / "celeba")


@pytest.fixture
def refusal():
    """refusal(call, *pieces) asserts that call() raises a DataError of one line that holds every piece."""
    from experiments.data.errors import DataError

    def check(call, *pieces):
        with pytest.raises(DataError) as caught:
            call()
        line = str(caught.value)
        assert line.strip() == line and len(line.splitlines()) == 1
        for piece in pieces:
            assert str(piece) in line
        return line

    return check
