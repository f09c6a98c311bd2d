"""Shapes and masks: the rules that every operator shares.

A mask is boolean, True = take part. It is a key mask [..., N] if it has one dimension, or one dimension fewer than the
keys; it is a mask of pairs [..., M, N] if it has as many dimensions as the queries or the keys, whichever have more. A
masked key is exactly an absent key, whatever it holds, and a query that has no key left gets zeros.

An option of type Scalar is a number, or an array that broadcasts against the leading dimensions ([H]: one for each
head) and may be learnt. Only a number is checked to be in its range.
"""

import math
import numbers

import jax.numpy as jnp
import numpy as np
from jax import Array

Mask = Array | None
Scalar = float | Array


def per_batch(x: Scalar | str, dtype: jnp.dtype | None = None, batch: tuple[int, ...] | None = None) -> Scalar | str:
    """A number or name as it is; an array [...] as [..., 1, 1], to meet the leading dimensions of a matrix.

    Raises ValueError for an array that does not broadcast against the leading dimensions `batch`, if they are given.
    """
    if isinstance(x, np.generic):  # a number too, but with a dtype, which would widen everything
        return x.item()
    if isinstance(x, (numbers.Real, str)):
        return x
    x = jnp.asarray(x, dtype)
    if batch is not None:
        check_leading("an option", x.shape, batch)
    return x[..., None, None]


def check_leading(what: str, shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    """Raises ValueError unless the leading dimensions `shape` of something broadcast against those of an operator."""
    if broadcast(shape, batch) is None:
        raise ValueError(f"{what} of leading dimensions {shape} does not fit those of query, key and value, {batch}")


def check_positive(name: str, x: Scalar, most: float = math.inf) -> None:
    """Raises ValueError for a number `x` outside (0, most]."""
    if isinstance(x, numbers.Real) and not 0 < x <= most:
        wanted = "positive" if most == math.inf else f"in (0, {most:g}]"
        raise ValueError(f"{name} must be {wanted}, got {x}")


def output_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    """Shape [..., M, k] of op(query [..., M, d], key [..., N, d], value [..., N, k]); leading dimensions broadcast.

    Raises ValueError if the three shapes do not fit.
    """
    shapes = [jnp.shape(x) for x in (query, key, value)]
    fits = all(len(s) >= 2 for s in shapes) and shapes[0][-1] == shapes[1][-1] and shapes[1][-2] == shapes[2][-2]
    batch = broadcast(*(s[:-2] for s in shapes)) if fits else None
    if batch is None:
        raise ValueError(
            "expected query [..., M, d], key [..., N, d], value [..., N, k] with leading dimensions that "
            "broadcast, got query {}, key {}, value {}".format(*shapes)
        )
    return (*batch, shapes[0][-2], shapes[2][-1])


def resolve(query: Array, key: Array, value: Array, mask: Mask) -> Array | None:
    """The mask as [..., 1, N] (one rule for all queries) or [..., M, N] (a rule for each query); None stays None.

    Raises ValueError if the shapes of query, key and value do not fit, or the mask does not fit them or is not boolean
    (or integer).
    """
    *batch, m, _ = output_shape(query, key, value)
    if mask is None:
        return None
    mask, n = jnp.asarray(mask), key.shape[-2]
    check_boolean(mask)
    if mask.ndim == 1 or mask.ndim == key.ndim - 1:
        fits, pairs = mask.shape[-1:] == (n,), mask[..., None, :]
    else:
        fits, pairs = mask.ndim == max(query.ndim, key.ndim) and mask.shape[-1] == n and mask.shape[-2] in (1, m), mask
    if not fits or broadcast(pairs.shape[:-2], tuple(batch)) is None:
        raise ValueError(
            f"expected a mask [..., {n}] over keys or [..., {m}, {n}] over queries and keys, with leading "
            f"dimensions that fit query {query.shape} and key {key.shape}, got {mask.shape}"
        )
    return pairs.astype(bool)


def check_boolean(mask: Array) -> None:
    """Raises ValueError unless a mask is boolean, or integer.

    A float mask is most often an additive one (0 and -inf): a cast would make the opposite of it.
    """
    if not (mask.dtype == bool or jnp.issubdtype(mask.dtype, jnp.integer)):
        raise ValueError(f"expected a boolean mask (True = take part), got {mask.dtype}")


def absent(key: Array, value: Array, mask: Mask) -> tuple[Array, Array, Array | None]:
    """Empties masked keys and values, so that nothing they hold reaches a product or its gradient.

    key [..., N, d], value [..., N, k], mask as `resolve` returned it -> key, value, and either None or [..., M, 1]: the
    queries whose own keys or values are not finite. Under a mask of pairs such rows must be emptied too, since a weight
    of zero times NaN is NaN, but the queries that use them are owed a NaN (see `owe`).
    """
    if mask is None:
        return key, value, None
    if mask.shape[-2] == 1:
        keep = jnp.swapaxes(mask, -1, -2)
        return jnp.where(keep, key, 0), jnp.where(keep, value, 0), None
    key_is_finite, value_is_finite = (jnp.isfinite(x).all(-1, keepdims=True) for x in (key, value))
    spoilt = (mask & ~jnp.swapaxes(key_is_finite & value_is_finite, -1, -2)).any(-1, keepdims=True)
    return jnp.where(key_is_finite, key, 0), jnp.where(value_is_finite, value, 0), spoilt


def owe(output: Array, spoilt: Array | None) -> Array:
    """Gives NaN to the queries that `absent` found to use a key or value that is not finite."""
    return output if spoilt is None else jnp.where(spoilt, jnp.nan, output)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that all broadcast to; None where they do not."""
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:
        return None
