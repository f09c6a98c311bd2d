"""Named tensors from the files that NumPy, safetensors and PyTorch save.

A PyTorch file is a zip of raw storages and a pickle that says which part of which storage a tensor is. It is read here
without PyTorch and without running any code that it names: tensors become arrays; objects of any class, such as the
attrdict.AttrDict of the published checkpoints, become plain dictionaries of their items.
"""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.harness import pickles
from experiments.harness.errors import UserError, first_line
from kvq_jax import files
from kvq_jax.names import unknown

# A small file must not fill the memory: it may unpack to so many times its size, or to so many bytes.
_UNPACKED_TIMES, _UNPACKED_BYTES = 20, 2**28
_NESTED = 3  # dictionaries in each other in which a state dict is looked for
_INNER = ("model", "state_dict")  # where a checkpoint keeps its state dict, beside the optimizer's and others
_PREFIX = "param/"  # of the parameters in a .npz that holds other arrays too


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Name -> array, of a .npz, a .safetensors, or a PyTorch (1.6 or later) state dict or checkpoint (.pt, .pth, .tar).

    Raises UserError where the file is missing, damaged, of another kind, far larger than it looks or without tensors,
    and where a number is not finite.
    """
    if path.suffix not in _READERS:
        raise UserError(f"{path}: {unknown('kind of file', path.suffix, _READERS)}")
    try:
        tensors = _READERS[path.suffix](path)
    except Exception as error:  # a pickle that is cut or changed is any sequence of operations
        raise UserError(f"cannot read tensors from {path}: {_told(error)}") from error
    if not tensors:
        raise UserError(f"{path} holds no tensors")
    for name, tensor in tensors.items():
        if tensor.dtype.kind not in "biu" and not np.isfinite(tensor).all():
            raise UserError(f"{path}: the tensor {name} has numbers that are not finite")
    return tensors


def _told(error: Exception) -> str:
    """What is wrong with a file, without NumPy's advice to run the code in it."""
    return "it holds Python objects" if "pickle" in str(error) else first_line(error)


def _check_unpacked(file: zipfile.ZipFile, path: Path) -> None:
    """Raises ValueError for a zip that unpacks to far more than its size."""
    unpacked = sum(entry.file_size for entry in file.infolist())
    if unpacked > max(_UNPACKED_BYTES, _UNPACKED_TIMES * path.stat().st_size):
        raise ValueError(f"it would unpack to {unpacked / 2**30:.1f} GiB")


def _read_numpy(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as packed:
        _check_unpacked(packed, path)
    with np.load(path) as file:
        prefix = _PREFIX if any(name.startswith(_PREFIX) for name in file) else ""
        return {name.removeprefix(prefix): file[name] for name in file if name.startswith(prefix)}


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as file:
        _check_unpacked(file, path)
        content = _Unpickler(file).load()
    for _ in range(_NESTED):  # a dictionary may hold itself
        inner = [key for key in _INNER if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)]
        content = content[inner[0]] if inner else content
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, np.ndarray) for name, tensor in content.items()
    ):
        raise ValueError(f"expected tensors by name, or those in one of {', '.join(_INNER)}")
    return dict(content)


class _Unpickler(pickle.Unpickler):
    """Reads the pickle in a file of PyTorch; nothing that it names is imported."""

    def __init__(self, file: zipfile.ZipFile):
        place = next((name for name in file.namelist() if name.endswith("/data.pkl")), None)
        if place is None:
            raise ValueError("PyTorch did not write this zip")
        content = file.read(place)
        pickles.check(content)
        super().__init__(io.BytesIO(content))
        self._file, self._folder, self._storages = file, place.removesuffix("data.pkl"), {}

    def find_class(self, module: str, name: str) -> Any:
        return _KNOWN.get((module, name), _Items)

    def persistent_load(self, place: tuple) -> np.ndarray:
        _, dtype, key, *_ = place
        if not (isinstance(dtype, np.dtype) and isinstance(key, str)):
            raise ValueError("a storage in it has no type or no name")
        if key not in self._storages:  # tensors may share one, any number of times
            self._storages[key] = self._file.read(f"{self._folder}data/{key}")
        return np.frombuffer(self._storages[key], dtype)


class _Items(dict):
    """An object of any class: the items that it is given, without its state."""

    def __init__(self, *arguments: Any):
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        pass


def _tensor(storage: np.ndarray, offset: int, shape: tuple, strides: tuple, *rest: Any) -> np.ndarray:
    """A view of a part of a storage; raises ValueError where it does not lie inside, or repeats numbers."""
    if not isinstance(storage, np.ndarray) or not all(type(number) is int for number in (offset, *shape, *strides)):
        raise ValueError("a tensor without a storage, or of a shape that is no integers")
    size = storage.itemsize
    if math.prod(shape) > storage.size:
        raise ValueError(f"a tensor of shape {shape} in a storage of {storage.size} numbers")
    return np.ndarray(shape, storage.dtype, storage, offset * size, tuple(stride * size for stride in strides))


_STORAGES = dict(
    DoubleStorage=np.float64,
    FloatStorage=np.float32,
    HalfStorage=np.float16,
    BFloat16Storage=jnp.bfloat16,
    LongStorage=np.int64,
    IntStorage=np.int32,
    BoolStorage=np.bool_,
)
_KNOWN = {("torch", name): np.dtype(kind) for name, kind in _STORAGES.items()} | {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *rest: tensor,
}
_READERS = {".npz": _read_numpy, ".safetensors": files.read_tensors} | dict.fromkeys(
    (".pt", ".pth", ".tar"), _read_torch
)
