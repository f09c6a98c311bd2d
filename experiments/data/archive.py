"""The source `archive`: a folder of the original files, verified against the manifest before they are used."""

import os
import pathlib

from experiments.data import idx, prepared
from experiments.data.dataset import SPLITS, DataSet, checked
from experiments.data.errors import DataError
from experiments.data.files import find, read_bytes, verify
from experiments.data.manifest import Manifest


def load(manifest: Manifest, data_dir: str | None) -> DataSet:
    """The data set of `manifest` from the original files under `data_dir`.

    Raises DataError for no data_dir or one that is not a folder, and for a missing, unreadable, truncated, malformed
    or altered file. A found file that fails is refused; no other copy is tried in its place.
    """
    check_folder(manifest, data_dir)
    return checked(manifest.quote, _idx_files(manifest, data_dir), manifest.image_shapes, data_dir)


def check_folder(manifest: Manifest, data_dir: str | None) -> None:
    """Raises DataError for no data_dir, or one that is not a folder."""
    if data_dir is None:
        raise DataError(f"source 'archive' needs the folder of the original {manifest.quote} files: pass --data_dir")
    if not os.path.isdir(data_dir):
        raise DataError(f"no folder {data_dir}: --data_dir must be the folder of the original {manifest.quote} files")


def locate(names, manifest: Manifest, data_dir) -> pathlib.Path:
    """The file with one of `names` in the folders of the manifest.

    Raises DataError where there is none: which file, where it looked, and the two ways to get it.
    """
    folders = [pathlib.Path(data_dir, folder) for folder in manifest.folders]
    path = find(names, folders)
    if path is None:
        raise DataError(
            f"no file {' or '.join(names)} (or either with .gz) of {manifest.quote}; looked in "
            f"{', '.join(map(str, folders))}; either download the original from {manifest.home} into {folders[0]}, "
            f"or use source 'tfds' after preparing it with {prepared.recipe(manifest, data_dir)}"
        )
    return path


def _idx_files(manifest: Manifest, data_dir) -> dict:
    """{split: {field: array}}, each from an IDX file of its own."""
    return {
        split: {field: _idx_file(entry, manifest, data_dir) for field, entry in manifest.files[split].items()}
        for split in SPLITS
    }


def _idx_file(entry: dict, manifest: Manifest, data_dir):
    path = locate(entry["names"], manifest, data_dir)
    raw = read_bytes(path)
    array = idx.decode(raw, path)  # before the checksum: "not an IDX file" tells more than "altered"
    verify(raw, path, entry["size"], entry["sha256"])
    return array
