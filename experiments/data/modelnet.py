"""ModelNet's shapes as point clouds (Wu et al. 2015), from a folder of its own: it may not be distributed.

source  what lies in --data_dir, or in its folder ModelNet40 or modelnet40_ply_hdf5_2048
off     <class>/{train,test}/*.off, surfaces of triangles: points are drawn from them, uniformly by area
hdf5    shape_names.txt, train_files.txt and test_files.txt, which name files with `data` [n, points, 3] and `label`

The third axis of what is loaded is up, as in OFF; in HDF5 it is the second.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.data.errors import DataError
from experiments.data.files import inside, read_bytes
from experiments.harness.errors import first_line
from kvq_jax.names import choose

_PARTS = ("train", "test")


class Clouds(NamedTuple):
    """Clouds of one split: points float32 [n, points, 3], label int32 [n]."""

    points: np.ndarray
    label: np.ndarray


class ModelNet(NamedTuple):
    """Two splits, the names of the classes, and how to quote them."""

    name: str
    train: Clouds
    test: Clouds
    classes: tuple[str, ...]


def load(source: str, data_dir: str | None, points: int) -> ModelNet:
    """ModelNet with at least `points` points in every cloud; of surfaces exactly so many, the same at every call.

    Raises DataError, one line, for an unknown source, and for a folder or file that is missing or damaged.
    """
    folder, read = choose(SOURCES, source, "source of ModelNet", DataError)
    if data_dir is None:
        raise DataError(f"source {source!r} reads a folder of ModelNet: pass --data_dir")
    with inside(data_dir, folder) as place:
        return read(place, points)


def read_off(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float64 [v, 3] and triangles int [t, 3] of an OFF file; a face of more corners becomes a fan.

    In some files of ModelNet the counts follow 'OFF' on its line. Raises DataError for a damaged file.
    """
    words = read_bytes(path).decode("ascii", "replace").split()
    try:
        if not words or not words[0].startswith("OFF"):
            raise ValueError("it does not begin with OFF")
        rest = words[0][3:]
        numbers = np.array(([rest] if rest else []) + words[1:], float)
        vertices, faces = map(int, numbers[:2])
        corner = numbers[3 : 3 + 3 * vertices].reshape(vertices, 3)
        triangles, place = [], 3 + 3 * vertices
        for _ in range(faces):
            corners = int(numbers[place])
            face = numbers[place + 1 : place + 1 + corners].astype(int)
            if corners < 3 or len(face) < corners:
                raise ValueError(f"a face of {len(face)} corners")
            triangles += [(face[0], face[i], face[i + 1]) for i in range(1, corners - 1)]
            place += 1 + corners
        triangle = np.array(triangles, int).reshape(-1, 3)
        if not len(triangle) or triangle.min() < 0 or triangle.max() >= vertices or not np.isfinite(corner).all():
            raise ValueError(f"no faces, or corners that are none of {vertices} vertices")
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: damaged OFF file: {first_line(error)}") from error
    return corner, triangle


def on_surface(corner: np.ndarray, triangle: np.ndarray, points: int, rng: np.random.Generator) -> np.ndarray:
    """`points` points float32 [points, 3], uniform by area on triangles [t, 3] of corners [v, 3].

    Raises ValueError for a surface without area.
    """
    a, b, c = (corner[triangle[:, place]] for place in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=-1)
    if not area.sum() > 0:
        raise ValueError("a surface without area")
    chosen = rng.choice(len(area), points, p=area / area.sum())
    one, other = rng.random((2, points, 1))
    one, other = np.where(one + other > 1, 1 - one, one), np.where(one + other > 1, 1 - other, other)  # folded back
    return np.float32(a[chosen] + one * (b - a)[chosen] + other * (c - a)[chosen])


def _off(folder: Path, points: int) -> ModelNet:
    classes = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()
    if not classes:
        raise DataError(f"{folder}: no folder of a class")
    rng, parts = np.random.default_rng(0), []
    for part in _PARTS:
        clouds, label = [], []
        for number, name in enumerate(classes):
            for path in sorted((folder / name / part).glob("*.off")):
                try:
                    clouds.append(on_surface(*read_off(path), points, rng))
                except ValueError as error:
                    raise DataError(f"{path}: {error}") from error
                label.append(number)
        if len(set(label)) < len(classes):
            raise DataError(f"{folder}: not every class has a file {part}/*.off: {len(set(label))} of {len(classes)}")
        parts.append(Clouds(np.stack(clouds), np.int32(label)))
    return ModelNet(_quoted(parts, classes), *parts, classes)


def _hdf5(folder: Path, points: int) -> ModelNet:
    try:
        import h5py  # an extra
    except ImportError as error:
        raise DataError("source 'hdf5' needs h5py: pip install '.[hdf5]'") from error

    classes = tuple(read_bytes(folder / "shape_names.txt").decode("ascii", "replace").split())
    parts = []
    for part in _PARTS:
        clouds, label = [], []
        for name in read_bytes(folder / f"{part}_files.txt").decode("ascii", "replace").split():
            path = folder / Path(name).name  # the lists name the folder of their authors
            try:
                with h5py.File(path) as file:
                    clouds.append(np.asarray(file["data"], np.float32))
                    label.append(np.asarray(file["label"], np.int32).reshape(-1))
            except (OSError, KeyError, ValueError) as error:
                raise DataError(f"{path}: cannot be read as HDF5 with data and label: {first_line(error)}") from error
            wanted = [len(label[-1]), "points", 3]
            if clouds[-1].ndim != 3 or clouds[-1].shape[2] != 3 or len(clouds[-1]) != len(label[-1]):
                raise DataError(f"{path}: expected data {wanted}, got {list(clouds[-1].shape)}")
            clouds[-1] = clouds[-1][..., [2, 0, 1]]  # a rotation: up is its second axis, and our third
            if not np.isfinite(clouds[-1]).all():
                raise DataError(f"{path}: a point that is not finite")
            if clouds[-1].shape[1] != clouds[0].shape[1]:
                raise DataError(f"{path}: clouds of {clouds[-1].shape[1]} points, before it of {clouds[0].shape[1]}")
            if clouds[-1].shape[1] < points:
                raise DataError(f"{path}: clouds of {clouds[-1].shape[1]} points, not of {points}")
        if not clouds:
            raise DataError(f"{folder / f'{part}_files.txt'}: names no file")
        parts.append(Clouds(np.concatenate(clouds), np.concatenate(label)))
        if not 0 <= parts[-1].label.min() <= parts[-1].label.max() < len(classes):
            raise DataError(f"{folder}: labels of {part} that are none of the {len(classes)} in shape_names.txt")
    return ModelNet(_quoted(parts, classes), *parts, classes)


def _quoted(parts: list[Clouds], classes: tuple[str, ...]) -> str:
    """'ModelNet40' with the 9843 and 2468 shapes of the original, else with what was counted."""
    counts = tuple(len(part.label) for part in parts)
    whole = counts == (9843, 2468) and len(classes) == 40
    return "ModelNet40" if whole else f"ModelNet ({len(classes)} classes, {counts[0]}/{counts[1]} shapes)"


# Name of a source -> its folder, and function(folder, points) -> ModelNet.
SOURCES = {"off": ("ModelNet40", _off), "hdf5": ("modelnet40_ply_hdf5_2048", _hdf5)}
