"""Stacks of layers that differ in their parameters alone: one of them is traced for all."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from kvq_jax.nn.block import Block


def traced_once(layers: Sequence[Block], **static: Any) -> Callable[..., Any]:
    """A function (layer, *args, **options) -> layer(*args, **options, **static) for `layers` with equal fields.

    Python runs the first layer only: tracing and lowering a stack take the time of one layer, and the program is the
    same. The layers have parameters and no other variables, draw nothing, and are bound. `static` are options that are
    no arrays.
    """
    if not layers or layers[0].is_initializing():
        return lambda layer, *args, **options: layer(*args, **options, **static)
    alone = layers[0].clone(parent=None, name=None, **layers[0].dtypes)
    run = jax.jit(lambda variables, args, options: alone.apply(variables, *args, **options, **static))
    return lambda layer, *args, **options: run(layer.variables, args, options)
