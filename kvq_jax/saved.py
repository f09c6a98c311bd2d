"""Trained models in folders: model.json, which class with which fields, and variables.safetensors, arrays by path.

    model, variables = kvq_jax.load("FOLDER")
    kvq_jax.load("FOLDER").predict(context, target_x)

A run of experiments.run keeps one such folder for each seed, weights/<seed>; scripts.import_weights writes one too. An
earlier state of the library wrote variables.npz, which is still read.
"""

import dataclasses
import io
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kvq_jax import files
from kvq_jax.names import choose, unknown

_MODEL, _VARIABLES, _EARLIER, _SEEDS = "model.json", "variables.safetensors", "variables.npz", "weights"
_DAMAGED = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class Trained(NamedTuple):
    """A Flax module and its variables."""

    model: Any
    variables: dict[str, Any]

    def predict(self, *arguments: Any, **options: Any) -> Any:
        """model.apply(variables, ...): of a regression, predict(context, target_x, target_mask, key=key)."""
        return self.model.apply(self.variables, *arguments, **options)

    def astype(self, dtype: Any) -> "Trained":
        """The model with variables and computation in another dtype, such as jnp.bfloat16: see kvq_jax.nn.Block."""
        import jax
        import jax.numpy as jnp

        cast = lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
        return Trained(self.model.clone(dtype=dtype), jax.tree.map(cast, self.variables))


def save(folder: str | os.PathLike, model: Any, variables: Mapping[str, Any]) -> None:
    """Writes a module of kvq_jax.models or kvq_jax.nn and its variables into `folder`, which is made if needed.

    Each file appears whole or not at all. Raises ValueError for a model that is of neither, a field that JSON cannot
    hold (a function), and an array of a dtype that safetensors has not; OSError where the folder cannot be written.
    """
    described, arrays = describe(model), dict(_flat(variables))
    packed = io.BytesIO()
    files.write_tensors(packed, arrays)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((_VARIABLES, packed.getbuffer()), (_MODEL, f"{json.dumps(described, indent=2)}\n".encode())):
        with files.moved_into(folder / name) as file:
            file.write(content)


def load(path: str | os.PathLike, seed: int | None = None) -> Trained:
    """The model in a folder that `save`, a run or scripts.import_weights wrote; of a run that of `seed`, or its first.

    A field that model.json does not name has its default.

    Raises:
      FileNotFoundError: no trained model there, or none of this seed.
      ValueError: a file that is damaged, or of another version of the library. Both are one line and name the file.
    """
    import jax
    import jax.numpy as jnp

    folder = _folder(pathlib.Path(path), seed)
    model, variables = read(folder)
    return Trained(model, jax.tree.map(jnp.asarray, variables))


def read(folder: pathlib.Path) -> Trained:
    """As `load`, of the folder itself, with NumPy arrays."""
    from flax.traverse_util import unflatten_dict

    file = folder / _MODEL
    try:
        section = json.loads(file.read_text())
        model = _build(section)
        file = folder / _VARIABLES
        if not file.exists() and (folder / _EARLIER).exists():
            file = folder / _EARLIER
        arrays = files.read_tensors(file) if file.name == _VARIABLES else _read_numpy(file)
        variables = unflatten_dict({tuple(name.split("/")): array for name, array in arrays.items()})
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{folder} holds no trained model: {file.name} is missing") from error
    except _DAMAGED as error:
        raise ValueError(f"cannot read {file}: {' '.join(str(error).split())}") from error
    return Trained(model, variables)


def describe(model: Any) -> dict[str, Any]:
    """What model.json says of a module: its class and fields, but for defaults that JSON cannot hold.

    Raises ValueError as `save`.
    """
    from kvq_jax.fields import fields_of

    name = type(model).__name__
    if _classes().get(name) is not type(model):
        raise ValueError(f"{name} is no class of kvq_jax.models or kvq_jax.nn, so that no one could load it")
    described = {"class": name}
    for field, declared in fields_of(type(model)).items():
        value = getattr(model, field)
        try:
            described[field] = _plain(value, f"{name}.{field}")
        except ValueError:  # a function, say
            if value is not declared.default:
                raise
    return described


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry, f"{where}.{key}") for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, where) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return describe(value)
    raise ValueError(f"{where}: JSON cannot hold {value!r}; fields of a saved model are names and numbers")


def _build(section: Mapping[str, Any]) -> Any:
    """The module that `describe` described. Raises ValueError: an unknown class or field."""
    from kvq_jax.fields import fields_of

    if not isinstance(section, Mapping) or not isinstance(section.get("class"), str):
        raise ValueError("it names no class")
    cls = choose(_classes(), section["class"], "class")
    known = fields_of(cls)
    for field in section.keys() - {"class"}:
        if field not in known:
            raise ValueError(unknown(f"field of {section['class']}", field, known))
    return cls(**{field: _field(value) for field, value in section.items() if field != "class"})


def _field(value: Any) -> Any:
    """A value that a module can hold: tuples for lists, as it is hashed, and modules for what describes them."""
    if isinstance(value, Mapping):
        return _build(value) if "class" in value else {key: _field(entry) for key, entry in value.items()}
    return tuple(map(_field, value)) if isinstance(value, list) else value


def _classes() -> dict[str, type]:
    """The modules that a user can name, by the name of their class."""
    from flax import linen

    from kvq_jax import models, nn  # a second, for numpyro: only where a model is saved or loaded

    found = {**vars(nn), **vars(models)}
    return {name: cls for name, cls in found.items() if isinstance(cls, type) and issubclass(cls, linen.Module)}


def _folder(path: pathlib.Path, seed: int | None) -> pathlib.Path:
    """The folder of the files: `path`, or that of a seed below a run folder."""
    seeds = {folder.name: folder for folder in (path / _SEEDS).glob("[0-9]*") if folder.name.isdecimal()}
    if not seeds:
        if seed is not None:
            raise FileNotFoundError(f"{path} is no run folder with seeds: leave out seed={seed}")
        return path
    first = min(seeds, key=int)
    if str(first if seed is None else seed) not in seeds:
        raise FileNotFoundError(f"{path} has no seed {seed}: expected one of {', '.join(sorted(seeds, key=int))}")
    return seeds[first if seed is None else str(seed)]


def _flat(variables: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    from flax.traverse_util import flatten_dict

    return ((("/".join(path)), np.asarray(leaf)) for path, leaf in flatten_dict(variables).items())


def _read_numpy(path: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(path) as held:
        return {name: held[name] for name in held.files}
