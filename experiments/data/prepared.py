"""The source `tfds`: data that TensorFlow Datasets prepared earlier, read without TensorFlow and without the network.

Preparing stores the examples in a shuffled order, so the same seed draws other images here than from `archive`.
Images are decoded one by one (60,000 of MNIST: about ten seconds).
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.data.dataset import DataSet, checked
from experiments.data.errors import DataError
from experiments.data.manifest import Manifest
from experiments.harness.errors import first_line


def load(manifest: Manifest, data_dir: str | None) -> DataSet:
    """The data set of `manifest` as prepared under `data_dir`, or in TFDS's own folder where that is None.

    Raises DataError, at once, for data that is not prepared (with the command that prepares it), not in a format
    that can be read without TensorFlow, unreadable, or prepared with a limit on the number of examples.
    """
    folder, builder = opened(manifest, data_dir)
    with readable(folder, manifest, data_dir):
        splits = {ours: _read(builder, theirs, manifest) for ours, theirs in manifest.tfds["splits"].items()}
    return checked(manifest.quote, splits, manifest.image_shapes, folder)


def opened(manifest: Manifest, data_dir: str | None) -> tuple[pathlib.Path, Any]:
    """The folder of the newest prepared version, and its builder. Raises DataError as `load` does."""
    import tensorflow_datasets as tfds  # half a second: only where it is used

    # The folder is searched here because tfds itself may ask the network about data that it does not find.
    root, builder_name = _root(data_dir), manifest.tfds["builder"]
    found = [path.parent for path in root.glob(f"{builder_name}/*/dataset_info.json")]
    found = [folder for folder in found if tfds.core.Version.is_valid(folder.name)]
    if not found:
        raise DataError(
            f"no prepared TFDS data of {manifest.quote} in {root / builder_name}; prepare it with "
            f"{recipe(manifest, data_dir)}, or use source 'archive'"
        )

    folder = max(found, key=lambda folder: tfds.core.Version(folder.name))
    with readable(folder, manifest, data_dir):
        return folder, tfds.builder(builder_name, version=folder.name, data_dir=root)


@contextlib.contextmanager
def readable(folder: pathlib.Path, manifest: Manifest, data_dir: str | None) -> Iterator[None]:
    """What fails within while the data in `folder` are read is raised as a DataError of one line."""
    try:
        yield
    except NotImplementedError as error:
        raise DataError(
            f"{folder}: this TFDS data can only be read with TensorFlow; delete it and prepare it with "
            f"{recipe(manifest, data_dir)}"
        ) from error
    except Exception as error:  # tfds, protobuf, array_record and pillow each raise errors of their own
        raise DataError(f"{folder}: cannot read this TFDS data: {first_line(error)}") from error


def recipe(manifest: Manifest, data_dir: str | None) -> str:
    """The shell command that downloads and prepares the data set so that `load` can read it."""
    return (
        f'python -c "import tensorflow_datasets as tfds; tfds.builder({manifest.tfds["builder"]!r}, '
        f"data_dir={str(_root(data_dir))!r}, file_format='array_record').download_and_prepare()\" "
        "(this step alone needs TensorFlow: pip install '.[prepare]')"
    )


def _root(data_dir) -> pathlib.Path:
    """`data_dir`, or the folder that TFDS documents as its own."""
    return pathlib.Path(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def _read(builder, split, manifest: Manifest) -> dict:
    """{field: array [n, ...]} of one split."""
    source = builder.as_data_source(split)
    examples = [source[i] for i in range(len(source))]
    fields = manifest.tfds["fields"]
    return {ours: np.array([example[theirs] for example in examples]) for ours, theirs in fields.items()}
