"""Stacks of layers that differ in their parameters alone: one of them is traced for all."""

import functools
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
    run = _program(alone, tuple(static.items()))

    def apply(layer, *args, **options):
        if starting and layer is first:
            return layer(*args, **options, **static)
        if starting:
            for name, value in first.variables["params"].items():
                layer.put_variable("params", name, jax.tree.map(jnp.copy, value))
        return run(layer.variables, args, options)

    return apply


def _program(layer: Block, static: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """(variables, args, options) -> the layer applied. Outside of jit, too, equal layers share a program."""
    try:
        hash(layer)
    except TypeError:  # an option of its operator is an array
        return jax.jit(functools.partial(_applied, layer, static))
    return functools.partial(_kept, layer, static)


def _applied(layer, static, variables, args, options):
    return layer.apply(variables, *args, **options, **dict(static))


_kept = jax.jit(_applied, static_argnums=(0, 1))


def _of_each(static: dict[str, Any]) -> Callable[..., Any]:
    return lambda layer, *args, **options: layer(*args, **options, **static)
