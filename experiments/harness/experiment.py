"""What an experiment hands to the harness: pure functions and arrays, nothing that trains, writes or draws."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from experiments.harness.size_classes import Sizes

PyTree = Any
DATA = "data/"  # begins the names of examples that are a data set's own, which `scripts.collect` leaves out
NO_DATA = dict.fromkeys(("train", "validation", "test"))  # the data of an experiment that draws all of it from keys
Variables = dict[str, PyTree]  # a linen variable dict: {'params': ..., and any mutable collection}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The functions of one cell of a table. All are pure, and all but `host` run inside jit.

    Attributes:
      init: key -> variables.
      sample: (key, data of one split) -> one task of fixed shapes; with `sizes`, what is random in it. The harness
        vmaps it over the keys of a batch.
      loss: (variables, batch, key) -> (scalar loss, (named scalar metrics, updated collections)).
      evaluate: (variables, data of the test split, key) -> name -> value of each evaluation task, [tasks]; with `host`
        arrays of any shape. The key is a constant of the program.
      examples: (variables, data of the test split, key) -> named arrays that the figures draw.
      data: split ('train', 'validation', 'test') -> arrays, held on the device for the whole run.
      facts: what result.json says that the config cannot know, such as which data a folder holds. JSON values.
      model: the module whose variables `init` makes, which a run keeps for kvq_jax.load; None: it keeps none.
      sizes: what gives the batches their sizes; None: every task has the same shapes.
      host: what JAX cannot compute, outside jit: (name -> NumPy array [S, ...] of `evaluate` under each of S seeds) ->
        name -> the value of each of some tasks, [S or 1, tasks]. None: what `evaluate` returns are the values.
      parts: how many parts the evaluation has, whose arrays are joined. A run that was killed goes on with the first
        part that it had not finished.
      part: (data of the test split, number of a part) -> what `evaluate` sees in place of the data. None: it sees them.
    """

    init: Callable[[jax.Array], Variables]
    sample: Callable[[jax.Array, PyTree], PyTree]
    loss: Callable[[Variables, PyTree, jax.Array], tuple[jax.Array, tuple[dict, dict]]]
    evaluate: Callable[[Variables, PyTree, jax.Array], dict[str, jax.Array]]
    examples: Callable[[Variables, PyTree, jax.Array], dict[str, jax.Array]]
    data: dict[str, PyTree]
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: Sizes | None = None
    model: nn.Module | None = None
    host: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None
    parts: int = 1
    part: Callable[[PyTree, jax.Array], PyTree] | None = None
