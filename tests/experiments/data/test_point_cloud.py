"""Point clouds: each kind of file is read back as written; each kind of damage is one line that names the file."""

import gzip
import struct

import numpy as np
import pytest

from experiments.data import point_cloud
from experiments.data.errors import DataError

POINTS = np.array([[0, 1, 2], [-1.5, 0.25, 8], [3, -4, 0.5]], np.float32)
OBJ = "# three vertices\nvn 0 0 1\n" + "".join(f"v {x} {y} {z}\n" for x, y, z in POINTS) + "f 1 2 3\n"


def ply(form, number, body):
    head = f"ply\nformat {form} 1.0\ncomment made here\nelement vertex 3\nproperty uchar red\n"
    head += "".join(f"property {number} {axis}\n" for axis in "zyx")
    head += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    return head.encode() + body


def packed(layout):
    return b"".join(struct.pack(layout, 7, *point[::-1]) for point in POINTS)


FILES = {
    "cloud.obj": OBJ.encode(),
    "ascii.ply": ply("ascii", "float", "".join(f"7 {z} {y} {x}\n" for x, y, z in POINTS).encode() + b"3 0 1 2\n"),
    "little.ply": ply("binary_little_endian", "float32", packed("<B3f") + b"\x03" + bytes(12)),
    "big.ply": ply("binary_big_endian", "double", packed(">B3d")),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("compress", [False, True])
def test_every_kind_of_file_gives_its_vertices(tmp_path, name, compress):
    file = tmp_path / (name + ".gz" * compress)
    file.write_bytes(gzip.compress(FILES[name], mtime=0) if compress else FILES[name])
    for path in (tmp_path / name, file):  # with or without naming the .gz
        points = point_cloud.read(path)
        assert points.dtype == np.float32
        np.testing.assert_array_equal(points, POINTS)


def test_numpy_files_may_be_flat(tmp_path):
    np.save(tmp_path / "space.npy", POINTS)
    np.save(tmp_path / "plane.npy", POINTS[:, :2])
    np.testing.assert_array_equal(point_cloud.read(tmp_path / "space.npy"), POINTS)
    np.testing.assert_array_equal(point_cloud.read(tmp_path / "plane.npy"), POINTS * (1, 1, 0))


NPY = b"\x93NUMPY\x01\x00v\x00{'descr'"


@pytest.mark.parametrize(
    "name, raw, message",
    [
        ("cloud.stl", b"", "did you mean|known: .npy, .obj, .ply"),
        ("cloud.obj", b"# no vertex\nf 1 2 3\n", "damaged .obj file: no line begins with 'v'"),
        ("cloud.obj", b"v 1 2 3\nv 1 2\n", "damaged .obj file"),
        ("cloud.obj", b"v 1 2 three\n", "damaged .obj file: .*three"),
        ("cloud.obj", b"v 1 2 nan\n", "not finite"),
        ("cloud.npy", NPY, "damaged .npy file"),
        ("cloud.ply", b"plywood", "damaged .ply file: no PLY header"),
        ("cloud.ply", FILES["ascii.ply"][:-20], "damaged .ply file: "),
        ("cloud.ply", FILES["big.ply"][:-1], "damaged .ply file: 2 of 3 vertices"),
        ("cloud.ply", FILES["little.ply"].replace(b"float32 z", b"float32 t"), "damaged .ply file: 'z'"),
        ("cloud.ply", FILES["little.ply"].replace(b"float32 z", b"list int int z"), "damaged .ply file"),
        ("cloud.ply", FILES["little.ply"].replace(b"element vertex 3", b"element face 3"), "its first element is not"),
        ("cloud.ply", FILES["little.ply"].replace(b"little", b"middle"), "damaged .ply file"),
        ("cloud.ply", FILES["little.ply"].replace(b"format ", b"former "), "damaged .ply file"),
        ("cloud.obj.gz", gzip.compress(OBJ.encode(), mtime=0)[:-9], "truncated gzip"),
    ],
)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=message) as caught:
        point_cloud.read(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_says_where_it_looked(tmp_path):
    with pytest.raises(DataError, match="no point cloud .*bunny.obj, nor bunny.obj.gz"):
        point_cloud.read(tmp_path / "bunny.obj")


def test_arrays_that_are_no_points_are_refused(tmp_path):
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(DataError, match=r"shape \[2, 2, 2\]"):
        point_cloud.read(tmp_path / "cube.npy")


@pytest.mark.parametrize("points", [5, 1500])
def test_the_rabbit_has_ears_above_its_head_and_is_the_same_every_time(points):
    rabbit = point_cloud.rabbit(points)
    assert rabbit.shape == (points, 3) and rabbit.dtype == np.float32
    np.testing.assert_array_equal(rabbit, point_cloud.rabbit(points))
    if points > 5:
        ears = rabbit[rabbit[:, 1] > 1.25]
        assert 0.05 < len(ears) / points < 0.2 and {*np.sign(ears[:, 2])} == {-1, 1}
        x, y, z = rabbit.T
        assert (x**2 + y**2 + (z / 0.7) ** 2 > 0.5).all()  # a surface: nothing deep inside the body
