"""Point clouds: the vertices of .obj, .ply and .npy files, and a rabbit for those who have no file.

    read(path) -> [n, 3] float32        rabbit(n) -> [n, 3] float32

Faces, normals and colours are left out. A file may be gzip-compressed, under its own name or with .gz appended.
"""

import io
import math
from pathlib import Path

import numpy as np

from experiments.data.errors import DataError
from experiments.data.files import find, read_bytes
from experiments.harness.errors import first_line
from kvq_jax.names import unknown

# A rabbit sitting in the plane of x and y, of ellipsoids: (centre, radii, turn in that plane in degrees).
_RABBIT = (
    ((0.00, 0.00, 0.00), (1.00, 0.80, 0.70), 12),  # body
    ((0.42, -0.45, 0.00), (0.62, 0.42, 0.72), 0),  # hind leg and paws
    ((-0.62, -0.62, 0.00), (0.48, 0.20, 0.45), 0),
    ((-0.98, 0.78, 0.00), (0.50, 0.42, 0.40), 15),  # head
    ((-0.72, 1.55, 0.16), (0.19, 0.62, 0.12), -8),  # ears
    ((-0.38, 1.43, -0.16), (0.19, 0.62, 0.12), -38),
    ((1.08, -0.22, 0.00), (0.26, 0.24, 0.24), 0),  # tail
)


def read(path: str | Path) -> np.ndarray:
    """The vertices of a point cloud in the file `path`, [n, 3] float32; a .npy may also hold [n, 2], then z = 0.

    Raises DataError for a file that is missing, of another kind, damaged, or without a finite point.
    """
    path = Path(path)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in FORMATS:
        raise DataError(f"{path}: {unknown('kind of point cloud', kind, FORMATS)}")
    place = find([path.name], [path.parent])
    if place is None:
        raise DataError(f"no point cloud {path}, nor {path.name}.gz beside it")
    raw = read_bytes(place)
    try:
        points = np.asarray(FORMATS[kind](raw), np.float32)
    except (ValueError, IndexError, KeyError, EOFError, TypeError) as error:
        raise DataError(f"{place}: damaged {kind} file: {first_line(error)}") from error
    if points.ndim != 2 or points.shape[1] not in (2, 3) or not len(points):
        raise DataError(f"{place}: expected points [n, 3] or [n, 2], got an array of shape {list(points.shape)}")
    if not np.isfinite(points).all():
        raise DataError(f"{place}: has coordinates that are not finite numbers")
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))


def rabbit(points: int) -> np.ndarray:
    """`points` points [points, 3] spread over the surface of a drawn rabbit, the same ones at every call."""
    surface = np.concatenate([_outside_of_the_others(number, 6 * points) for number in range(len(_RABBIT))])
    chosen = np.random.default_rng(0).choice(len(surface), points, replace=False)
    return surface[chosen].astype(np.float32)


def _outside_of_the_others(number: int, density: int) -> np.ndarray:
    """Points [n, 3] on ellipsoid `number` of the rabbit, about `density` per unit of area, without those in another."""
    (a, b, c) = radii = np.array(_RABBIT[number][1])
    surface = _to_world(_sphere(int(density * (a * b + b * c + c * a) / 3)) * radii, number)
    others = [other for other in range(len(_RABBIT)) if other != number]
    inside = [np.sum((_to_own(surface, other) / _RABBIT[other][1]) ** 2, -1) < 1 for other in others]
    return surface[~np.any(inside, 0)]


def _to_world(points: np.ndarray, number: int) -> np.ndarray:
    centre, _, degrees = _RABBIT[number]
    return points @ _turn(degrees).T + centre


def _to_own(points: np.ndarray, number: int) -> np.ndarray:
    centre, _, degrees = _RABBIT[number]
    return (points - centre) @ _turn(degrees)


def _turn(degrees: float) -> np.ndarray:
    """The rotation [3, 3] of the plane of x and y."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])


def _sphere(points: int) -> np.ndarray:
    """[points, 3] evenly on the unit sphere: equal steps in z, turned by the golden angle."""
    z = 1 - (2 * np.arange(points) + 1) / points
    angle = math.pi * (3 - math.sqrt(5)) * np.arange(points)
    return np.stack([np.sqrt(1 - z**2) * np.cos(angle), np.sqrt(1 - z**2) * np.sin(angle), z], -1)


def _npy(raw: bytes) -> np.ndarray:
    return np.load(io.BytesIO(raw), allow_pickle=False)


def _obj(raw: bytes) -> np.ndarray:
    """The lines 'v x y z ...' of a Wavefront file."""
    rows = [line.split() for line in raw.decode("ascii", "replace").splitlines()]
    vertices = [row[1:4] for row in rows if row and row[0] == "v"]
    if not vertices:
        raise ValueError("no line begins with 'v'")
    return np.array(vertices, float)


# PLY's names of number types, old and new, as numpy's.
_PLY_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"), **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"), **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"), **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"), **dict.fromkeys(("double", "float64"), "f8"),
}  # fmt: skip
_PLY_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}


def _ply(raw: bytes) -> np.ndarray:
    """The x, y, z of the element 'vertex' of a PLY file, ascii or binary: its first element, without lists."""
    head, end, body = raw.partition(b"end_header")
    lines = [line.split() for line in head.decode("ascii", "replace").splitlines()]
    if not end or lines[0] != ["ply"]:
        raise ValueError("no PLY header")
    body = body.lstrip(b"\r").removeprefix(b"\n")
    (form,) = [line[1] for line in lines if line[:1] == ["format"]]
    elements = [number for number, line in enumerate(lines) if line[:1] == ["element"]]
    if not elements or lines[elements[0]][1] != "vertex":
        raise ValueError("its first element is not 'vertex'")
    count = int(lines[elements[0]][2])
    own = lines[elements[0] + 1 : (elements[1:] or [len(lines)])[0]]
    fields = [(line[-1], _PLY_TYPES[line[1]]) for line in own if line[:1] == ["property"]]
    columns = [[name for name, _ in fields].index(axis) for axis in "xyz"]
    if form == "ascii":
        rows = body.decode("ascii", "replace").splitlines()[:count]
        table = np.array([row.split() for row in rows], float).reshape(len(rows), len(fields))
    else:
        layout = np.dtype([(name, _PLY_ORDERS[form] + kind) for name, kind in fields])
        records = np.frombuffer(body, layout, min(count, len(body) // layout.itemsize))
        table = np.stack([records[name].astype(float) for name, _ in fields], -1)
    if len(table) != count:
        raise ValueError(f"{len(table)} of {count} vertices")
    return table[:, columns]


# Ending of a file's name -> function(bytes) -> points [n, 3] or [n, 2].
FORMATS = {".obj": _obj, ".ply": _ply, ".npy": _npy}
