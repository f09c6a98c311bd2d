"""The IDX format of the MNIST family: a magic number, the dimensions, and the array itself, all big-endian.

bytes 0, 1   zero
byte 2       element type, a key of DTYPES
byte 3       number of dimensions D
4 D bytes    the dimensions, unsigned 32-bit
the rest     the elements, last axis fastest
"""

import math

import numpy as np

from experiments.data.errors import DataError
from experiments.data.files import read_bytes

DTYPES = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}


def read(path) -> np.ndarray:
    """The array in an IDX file, gzip or not (told by content, not by name); errors as read_bytes and decode."""
    return decode(read_bytes(path), path)


def decode(raw: bytes, path) -> np.ndarray:
    """The array [*dimensions] in the uncompressed IDX bytes `raw` of file `path`, in native byte order.

    Raises DataError, naming `path`, for a wrong magic number and for any size but the one the header gives.
    """
    magic = raw[:4]
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES or magic[3] == 0:
        raise DataError(f"{path}: not an IDX file: its magic number is 0x{magic.hex()}")
    dtype, start = DTYPES[magic[2]], 4 + 4 * magic[3]
    if len(raw) < start:
        raise DataError(f"{path}: truncated IDX file: {len(raw)} bytes, but its header alone takes {start}")
    shape = [int(n) for n in np.frombuffer(raw, ">u4", count=magic[3], offset=4)]
    expected = start + dtype.itemsize * math.prod(shape)
    if len(raw) != expected:
        raise DataError(f"{path}: wrong size: {dtype.name} {shape} takes {expected} bytes, got {len(raw)}")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
