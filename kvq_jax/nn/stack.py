"""Stacks of layers that differ in their parameters alone: one of them is traced for all."""

from collections.abc import Callable
from typing import Any

import jax
from flax import linen as nn


def traced_once(layer: nn.Module, **static: Any) -> Callable[..., Any]:
    """A function (layer, *args, **options) -> layer(*args, **options, **static) for layers with the fields of `layer`.

    Python runs the first layer only: tracing and lowering a stack take the time of one layer, and the program is the
    same. The layers have parameters and no other variables, draw nothing, and are bound. `static` are options that are
    no arrays.
    """
    if layer.is_initializing():
        return lambda layer, *args, **options: layer(*args, **options, **static)
    alone = layer.clone(parent=None, name=None)
    run = jax.jit(lambda variables, args, options: alone.apply(variables, *args, **options, **static))
    return lambda layer, *args, **options: run(layer.variables, args, options)
