"""ModelNet's files: surfaces and clouds that a test writes, points uniform by area, and what is refused."""

import numpy as np
import pytest

from experiments.data import modelnet
from experiments.data.errors import DataError

# A square and a triangle of half its area, in two planes.
OFF = "OFF\n7 2 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n0 0 5\n1 0 5\n0 1 5\n4 0 1 2 3\n3 4 5 6\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_face_of_four_corners_is_two_triangles_and_counts_may_follow_the_head(tmp_path):
    for text in (OFF, OFF.replace("OFF\n", "OFF", 1), OFF.replace("\n", "\r\n")):
        corner, triangle = modelnet.read_off(write(tmp_path / "a.off", text))
        assert corner.shape == (7, 3) and triangle.tolist() == [[0, 1, 2], [0, 2, 3], [4, 5, 6]]


def test_points_are_uniform_by_area(tmp_path):
    points = modelnet.on_surface(*modelnet.read_off(write(tmp_path / "a.off", OFF)), 30_000, np.random.default_rng(0))
    square = points[points[:, 2] == 0, :2]
    assert points.dtype == np.float32 and len(square) / 30_000 == pytest.approx(2 / 3, abs=0.01)
    cells = np.bincount(np.int32(square[:, 0] * 4) * 4 + np.int32(square[:, 1] * 4), minlength=16) / len(square)
    np.testing.assert_allclose(cells, 1 / 16, atol=0.008)
    half = points[points[:, 2] == 5]
    assert (half[:, 0] + half[:, 1] <= 1 + 1e-6).all() and half[:, :2].mean(0) == pytest.approx([1 / 3] * 2, abs=0.01)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "does not begin with OFF"),
        ("PLY" + OFF[3:], "does not begin with OFF"),
        (OFF.replace("7 2", "9 2"), "damaged OFF file"),
        (OFF[:-2], "damaged OFF file: a face of 2 corners"),
        (OFF.replace("3 4 5 6", "3 4 5 7"), "none of 7 vertices"),
        (OFF.replace("0 0 5", "0 0 x"), "could not convert"),
        (OFF.replace("7 2", "7 0"), "no faces"),
    ],
)
def test_a_damaged_surface_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=f"a.off: .*{message}"):
        modelnet.read_off(write(tmp_path / "a.off", text))


def test_a_folder_of_surfaces(tmp_path):
    for name, count in (("chair", 2), ("bed", 1)):
        for part in ("train", "test"):
            for number in range(count):
                write(tmp_path / "ModelNet40" / name / part / f"{number}.off", OFF)
    found = modelnet.load("off", str(tmp_path), 50)
    assert found.classes == ("bed", "chair") and found.name == "ModelNet (2 classes, 3/3 shapes)"
    assert found.train.points.shape == (3, 50, 3) and found.train.label.tolist() == [0, 1, 1]
    again = modelnet.load("off", str(tmp_path / "ModelNet40"), 50)
    np.testing.assert_array_equal(found.test.points, again.test.points)
    flat = OFF.replace("1 0 5", "0 0 5").replace("4 0 1 2 3", "4 0 0 0 0")
    write(tmp_path / "ModelNet40" / "bed" / "test" / "0.off", flat)
    with pytest.raises(DataError, match="0.off: a surface without area"):
        modelnet.load("off", str(tmp_path), 50)
    (tmp_path / "ModelNet40" / "bed" / "test" / "0.off").unlink()
    with pytest.raises(DataError, match="not every class has a file test/.*: 1 of 2"):
        modelnet.load("off", str(tmp_path), 50)


@pytest.mark.parametrize(
    "source, folder, message",
    [
        ("of", None, "did you mean 'off'"),
        ("off", None, "pass --data_dir"),
        ("off", "nowhere", "no folder of a class; and there is no folder nowhere/ModelNet40"),
    ],
)
def test_what_is_not_there(source, folder, message):
    with pytest.raises(DataError, match=message):
        modelnet.load(source, folder, 10)


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    write(tmp_path / "shape_names.txt", "bed\nchair\n")
    points = np.random.default_rng(0).normal(size=(5, 8, 3)).astype(np.float32)
    for part, rows in (("train", ([0, 1], [2])), ("test", ([3, 4],))):
        for number, own in enumerate(rows):
            with h5py.File(tmp_path / f"{part}{number}.h5", "w") as file:
                file["data"], file["label"] = points[own], np.array(own, np.uint8)[:, None] % 2
        write(tmp_path / f"{part}_files.txt", "\n".join(f"data/of/authors/{part}{n}.h5" for n in range(len(rows))))
    found = modelnet.load("hdf5", str(tmp_path), 8)
    np.testing.assert_array_equal(found.train.points[..., 2], points[:3, :, 1])  # up
    np.testing.assert_array_equal(found.train.points[..., [1, 2, 0]], points[:3])
    turn = np.linalg.lstsq(points[0], found.train.points[0], rcond=None)[0]
    assert np.linalg.det(turn) == pytest.approx(1)  # no reflection
    assert found.train.label.tolist() == [0, 1, 0] and found.test.label.tolist() == [1, 0]
    with pytest.raises(DataError, match="clouds of 8 points, not of 9"):
        modelnet.load("hdf5", str(tmp_path), 9)
    write(tmp_path / "shape_names.txt", "bed\n")
    with pytest.raises(DataError, match="labels of train that are none of the 1"):
        modelnet.load("hdf5", str(tmp_path), 8)
    write(tmp_path / "shape_names.txt", "bed\nchair\n")
    spoilt = points[2:3].copy()
    spoilt[0, 0] = np.nan
    for own, message in (
        (spoilt, "a point that is not finite"),
        (points[2:3, :6], "clouds of 6 points, before it of 8"),
    ):
        with h5py.File(tmp_path / "train1.h5", "w") as file:
            file["data"], file["label"] = own, np.zeros((1, 1), np.uint8)
        with pytest.raises(DataError, match=f"train1.h5: {message}"):
            modelnet.load("hdf5", str(tmp_path), 5)
    (tmp_path / "train1.h5").unlink()
    write(tmp_path / "train_files.txt", "train0.h5")
    (tmp_path / "test0.h5").write_bytes(b"no HDF5")
    with pytest.raises(DataError, match="test0.h5: cannot be read as HDF5"):
        modelnet.load("hdf5", str(tmp_path), 8)
