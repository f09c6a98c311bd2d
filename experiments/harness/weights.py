"""Trained parameters in place of a training: --weights DIR, a folder of kvq_jax.save or a run folder."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from experiments.harness.errors import UserError
from experiments.harness.experiment import PyTree
from kvq_jax import saved
from kvq_jax.fields import knobs_of
from kvq_jax.models import MODELS


@dataclasses.dataclass(frozen=True)
class Weights:
    """A model's config section, its parameters, and sixteen hex digits that identify the parameters."""

    model: dict[str, Any]
    params: PyTree
    digest: str


def load(folder: Path) -> Weights:
    """What kvq_jax.save, or a run of one or more seeds (its first), left in a folder.

    Experiments compute in float32, whatever dtypes the model has. Raises UserError where it is missing or damaged, and
    for a model that is not one of kvq_jax.models.MODELS.
    """
    try:
        model, variables = saved.load(folder)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(f"--weights: {error}") from error
    section = {field: value for field, value in saved.describe(model).items() if field in knobs_of(type(model))}
    name = next((name for name, row in MODELS.items() if row.cls is type(model)), None)
    if name is None:
        raise UserError(
            f"--weights: {folder} holds a {type(model).__name__}; only models of a regression are evaluated so"
        )
    params = jax.device_get(variables["params"])
    digest = hashlib.sha256()
    for path, array in sorted(_flat(params).items()):
        digest.update(path.encode() + array.tobytes())
    return Weights({"name": name} | section, params, digest.hexdigest()[:16])


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
