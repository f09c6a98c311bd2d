"""Points: the inputs, outputs and mask of a context or of targets, as every model of a regression takes them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Points(NamedTuple):
    """Inputs with their outputs. mask=None: all points are there."""

    x: jax.Array  # [..., n, dx]
    y: jax.Array  # [..., n, dy]
    mask: jax.Array | None = None  # [..., n], or [n] for all tasks; True = there


def join(first: Points, second: Points) -> Points:
    """The points of both, those of `first` before those of `second`."""
    if first.mask is None and second.mask is None:
        mask = None
    else:
        mask = jnp.concatenate([whole_mask(first), whole_mask(second)], -1)
    return Points(jnp.concatenate([first.x, second.x], -2), jnp.concatenate([first.y, second.y], -2), mask)


def as_floats(x: jax.Array) -> jax.Array:
    """x, in float32 where its numbers are whole: what is drawn beside them is not."""
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def whole_mask(points: Points) -> jax.Array:
    """The mask [..., n] of points, with all their leading dimensions: all True where it is None."""
    return jnp.broadcast_to(True if points.mask is None else points.mask, points.x.shape[:-1])
