"""Stacks of layers that differ in their parameters alone: one of them is traced for all."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from kvq_jax.nn.block import Block


def traced_once(layers: Sequence[Block], copied: bool = False, **static: Any) -> Callable[..., Any]:
    """A function (layer, *args, **options) -> layer(*args, **options, **static) for `layers` with equal fields.

    Python runs the first layer only: tracing and lowering a stack take the time of one layer, and the program is the
    same. The layers have parameters and no other variables, draw nothing, and are bound. `static` are options that are
    no arrays. At initialisation each layer draws its parameters, or has those of the first where they are `copied`.
    """
    if not layers:
        return _of_each(static)
    first, starting = layers[0], layers[0].is_initializing()
    if starting and not copied:
        return _of_each(static)
    alone = first.clone(parent=None, name=None, **first.dtypes)
    run = jax.jit(lambda variables, args, options: alone.apply(variables, *args, **options, **static))

    def apply(layer, *args, **options):
        if starting and layer is first:
            return layer(*args, **options, **static)
        if starting:
            for name, value in first.variables["params"].items():
                layer.put_variable("params", name, jax.tree.map(jnp.copy, value))
        return run(layer.variables, args, options)

    return apply


def _of_each(static: dict[str, Any]) -> Callable[..., Any]:
    return lambda layer, *args, **options: layer(*args, **options, **static)
