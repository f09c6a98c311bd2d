"""Finding, reading and verifying the files of an archive. Every failure is a DataError that names the file."""

import contextlib
import gzip
import hashlib
import os
import pathlib
import zlib
from collections.abc import Iterator

from experiments.data.errors import DataError
from experiments.harness.errors import first_line

GZIP_MAGIC = b"\x1f\x8b"


def find(names, folders) -> pathlib.Path | None:
    """The first of `names` in the first of `folders` that has one, plain before gzip; None where there is none."""
    for folder in folders:
        for name in names:
            for path in (pathlib.Path(folder, name), pathlib.Path(folder, name + ".gz")):
                if os.path.lexists(path):
                    return path
    return None


def read_bytes(path) -> bytes:
    """The contents of the file, uncompressed where they are gzip, whatever the file is called.

    Raises DataError for a file that cannot be read, and for a truncated or damaged gzip stream.
    """
    try:
        raw = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or first_line(error)}") from error
    if not raw.startswith(GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except EOFError as error:
        raise DataError(f"{path}: truncated gzip file ({len(raw)} bytes end before the stream does)") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged gzip file: {first_line(error)}") from error


def verify(raw: bytes, path, size: int, sha256: str) -> None:
    """Raises DataError unless the uncompressed bytes `raw` of the file have this size and SHA-256 digest."""
    if len(raw) != size:
        raise DataError(f"{path}: wrong size: expected {size} bytes uncompressed, got {len(raw)}")
    got = hashlib.sha256(raw).hexdigest()
    if got != sha256:
        raise DataError(f"{path}: checksum mismatch: expected sha256 {sha256} (uncompressed), got {got}")


@contextlib.contextmanager
def inside(data_dir: str, name: str) -> Iterator[pathlib.Path]:
    """The folder `name` of data_dir, or data_dir itself where it has none: a DataError then tells of both."""
    inner = pathlib.Path(data_dir, name)
    if not name or inner.is_dir():
        yield inner
        return
    try:
        yield pathlib.Path(data_dir)
    except DataError as error:
        raise DataError(f"{error}; and there is no folder {inner}") from error
