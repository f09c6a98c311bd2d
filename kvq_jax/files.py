"""Files that appear whole or not at all, and arrays by name in the safetensors format."""

import json
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import IO

import jax.numpy as jnp
import numpy as np

UNFINISHED = ".part"  # ends the names of files that are being written, which begin with a dot
# The format's name of a dtype -> the dtype.
_DTYPES = {name: np.dtype(kind) for name, kind in (("BOOL", np.bool_), ("BF16", jnp.bfloat16))} | {
    f"{letter}{bits}": np.dtype(f"{kind}{bits // 8}")
    for letter, kind, sizes in (("F", "f", (16, 32, 64)), ("I", "i", (8, 16, 32, 64)), ("U", "u", (8, 16, 32, 64)))
    for bits in sizes
}
_ALIGNED = 8  # bytes: where the numbers begin


class moved_into:
    """A binary file to write to, which appears as `path` once it is complete and on the disk."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def __enter__(self):
        handle, self._name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.", suffix=UNFINISHED)
        self._file = os.fdopen(handle, "wb")
        return self._file

    def __exit__(self, kind, value, trace):
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            if kind is None:
                os.chmod(self._name, 0o644)
                os.replace(self._name, self._path)
        finally:  # a full disk, too, leaves nothing behind
            pathlib.Path(self._name).unlink(missing_ok=True)


def write_tensors(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name: the size of a header, the header (JSON: dtype, shape and place of each), the numbers.

    https://huggingface.co/docs/safetensors. Raises ValueError for an array of a dtype that the format has not.
    """
    names = {dtype: name for name, dtype in _DTYPES.items()}
    header, place = {}, 0
    for name, array in arrays.items():
        if array.dtype not in names:
            raise ValueError(f"{name}: safetensors has no {array.dtype}")
        places = [place, place := place + array.nbytes]
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": places}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNED)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in arrays.values():
        file.write(array.tobytes())


def read_tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a .safetensors file by name. Raises OSError, or ValueError, TypeError or KeyError where damaged."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    tensors = {}
    for name in (name for name in header if name != "__metadata__"):
        begin, end = (start + offset for offset in header[name]["data_offsets"])
        part = memoryview(raw)[begin:end]  # no copy: any number of names may stand for the same numbers
        tensors[name] = np.frombuffer(part, _DTYPES[header[name]["dtype"]]).reshape(header[name]["shape"])
    if sum(tensor.nbytes for tensor in tensors.values()) > len(raw):
        raise ValueError("its tensors overlap")
    return tensors
