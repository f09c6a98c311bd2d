"""The IDX reader against bytes written by hand."""

import gzip

import numpy as np
import pytest

from experiments.data import idx

HEADER = bytes([0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3])
BODY = bytes([1, 2, 3, 4, 5, 255])


@pytest.mark.parametrize("wrap", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["x-idx2-ubyte", "x-idx2-ubyte.gz"])
def test_reads_by_content_whatever_the_name(tmp_path, wrap, name):
    path = tmp_path / name
    path.write_bytes(wrap(HEADER + BODY))
    array = idx.read(path)
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, [[1, 2, 3], [4, 5, 255]])


@pytest.mark.parametrize("code", [0x09, 0x0B, 0x0C, 0x0D, 0x0E])
def test_other_element_types_come_in_native_order(code):
    values = np.array([-3, 0, 100])
    raw = bytes([0, 0, code, 1, 0, 0, 0, 3]) + values.astype(idx.DTYPES[code]).tobytes()
    array = idx.decode(raw, "x")
    assert array.dtype == idx.DTYPES[code].newbyteorder("=") and array.dtype.isnative
    np.testing.assert_array_equal(array, values)


def test_an_empty_array_is_an_array():
    assert idx.decode(bytes([0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 3]), "x").shape == (0, 3)


@pytest.mark.parametrize(
    "raw, pieces",
    [
        (b"", ["not an IDX file"]),
        (b"\0\0\x08", ["not an IDX file", "0x000008"]),
        (b"<html>not found</html>", ["not an IDX file", "0x3c68746d"]),
        (b"\0\0\x0a\x01" + bytes(8), ["not an IDX file", "0x00000a01"]),
        (b"\0\0\x08\0" + bytes(8), ["not an IDX file", "0x00000800"]),
        (HEADER[:9], ["truncated", "9 bytes", "12"]),
        (HEADER + BODY[:-1], ["wrong size", "[2, 3]", "takes 18 bytes", "got 17"]),
        (HEADER + BODY + b"\0", ["wrong size", "takes 18 bytes", "got 19"]),
        (b"\0\0\x08\x04" + b"\xff" * 16, ["wrong size", "got 20"]),
    ],
)
def test_malformed_files_are_refused(tmp_path, refusal, raw, pieces):
    path = tmp_path / "bad-idx"
    path.write_bytes(raw)
    refusal(lambda: idx.read(path), path, *pieces)


def test_damaged_gzip_is_refused(tmp_path, refusal):
    path = tmp_path / "bad-idx.gz"
    stream = gzip.compress(HEADER + BODY)
    for length in range(2, len(stream)):  # the two bytes of magic are what makes it gzip at all
        path.write_bytes(stream[:length])
        refusal(lambda: idx.read(path), path, "truncated gzip file", f"{length} bytes")
    path.write_bytes(stream[:-8] + b"\0" + stream[-7:])
    refusal(lambda: idx.read(path), path, "damaged gzip file", "CRC")
    path.write_bytes(stream[:10] + b"\xff" + stream[11:])
    refusal(lambda: idx.read(path), path, "damaged gzip file")
    path.write_bytes(stream + b"more")
    refusal(lambda: idx.read(path), path, "damaged gzip file")


def test_unreadable_files_are_refused(tmp_path, refusal):
    refusal(lambda: idx.read(tmp_path / "absent"), tmp_path / "absent", "cannot be read", "No such file")
    refusal(lambda: idx.read(tmp_path), tmp_path, "cannot be read", "Is a directory")
