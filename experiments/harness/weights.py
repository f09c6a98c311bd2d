"""Parameters in a folder of their own, with the config section of their model: what `scripts.import_weights` writes.

model, variables = weights.load_model("DIR", kvq_jax.models.MODELS)
python -m experiments.run --config ... --weights DIR                  # evaluates them in place of a training
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from experiments.harness import settings
from experiments.harness.errors import UserError, first_line
from experiments.harness.experiment import PyTree
from experiments.harness.run_directory import moved_into, write_text
from experiments.harness.tensor_files import read_tensors

_MODEL, _PARAMETERS = "model.json", "parameters.npz"


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model's config section, its parameters, and sixteen hex digits that identify the parameters."""

    model: dict[str, Any]
    params: PyTree
    digest: str


def save(folder: Path, model: Mapping[str, Any], params: PyTree) -> None:
    """Writes a model's config section and parameters into `folder`, made if needed. Raises UserError if it cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with moved_into(folder / _PARAMETERS) as file:
            np.savez(file, **_flat(params))
        write_text(folder / _MODEL, json.dumps(model, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


def load(folder: Path) -> Weights:
    """What `save` wrote. Raises UserError where it is missing or damaged."""
    try:
        model = json.loads((folder / _MODEL).read_bytes())
        settings.named(model, str(folder / _MODEL))
        arrays = read_tensors(folder / _PARAMETERS)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder} holds no weights that can be read: {first_line(error)}") from error
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + arrays[name].tobytes())
    return Weights(
        model,
        unflatten_dict({tuple(name.split("/")): array for name, array in arrays.items()}),
        digest.hexdigest()[:16],
    )


def load_model(folder: str | Path, models: Mapping[str, Any]) -> tuple[Any, dict[str, PyTree]]:
    """The module (the class, or row with a class, of its name in `models`) and its variables. Raises UserError."""
    kept = load(Path(folder))
    model = settings.build_named(models, kept.model, str(Path(folder) / _MODEL))
    return model, {"params": jax.tree.map(jnp.asarray, kept.params)}


def fit(params: PyTree, expected: PyTree) -> PyTree:
    """`params` with the dtypes of `expected` (arrays or shapes). Raises UserError for a parameter that differs."""
    given, wanted = _flat(params), _flat(expected)
    for name in sorted(given.keys() | wanted.keys()):
        shapes = [tuple(tree[name].shape) if name in tree else None for tree in (given, wanted)]
        if shapes[0] != shapes[1]:
            raise UserError(f"weights: parameter {name} has shape {shapes[0]}, the config's model has {shapes[1]}")
    return jax.tree.map(lambda array, like: np.asarray(array, like.dtype), params, expected)


def _flat(params: PyTree) -> dict[str, Any]:
    return {"/".join(path): leaf for path, leaf in flatten_dict(params).items()}
