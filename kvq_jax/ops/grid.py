"""Attention over images and video: a grid becomes its points, an operator mixes them, and the output is folded back.

Higher-order attention by mode-3 unfolding of "A Mathematical View of Attention Models in Deep Learning" (slides), which
unfold h x w x c along the third mode to c x hw, columns being points. Here points are rows, so that is hw x c. Points
are in row-major order, for queries and outputs alike.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from kvq_jax.ops.attention import softmax_attention


def unfold(grid: Array, axes: int = 2) -> Array:
    """[..., h, w, c] -> [..., h * w, c], or for axes=3 [..., t, h, w, c] -> [..., t * h * w, c].

    Point (i, j) of an image is in row i * w + j. Raises ValueError if the grid has too few axes.
    """
    if axes < 1 or grid.ndim < axes + 1:
        raise ValueError(f"expected a grid [..., {axes} axes, channels], got {grid.shape}")
    return grid.reshape(*grid.shape[: -axes - 1], math.prod(grid.shape[-axes - 1 : -1]), grid.shape[-1])


def fold(rows: Array, sizes: tuple[int, ...]) -> Array:
    """The inverse of `unfold`: rows [..., N, c] -> [..., *sizes, c], for sizes (h, w) or (t, h, w).

    Raises ValueError if N is not the product of sizes.
    """
    if rows.ndim < 2 or rows.shape[-2] != math.prod(sizes):
        raise ValueError(
            f"expected rows [..., {math.prod(sizes)}, channels] for a grid {tuple(sizes)}, got {rows.shape}"
        )
    return rows.reshape(*rows.shape[:-2], *sizes, rows.shape[-1])


def grid_attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    op: Callable[..., Array] = softmax_attention,
    mask: Array | None = None,
    axes: int = 2,
    key_axes: int | None = None,
    **options,
) -> Array:
    """fold(op(unfold(Q), unfold(K), unfold(V))): higher-order attention. The query's grid is the output's grid.

    A smaller or larger query grid samples down or up; a query without leading dimensions may be a parameter.

    query [..., *grid, d], key [..., *key grid, d], value [..., *key grid, k], mask [..., *key grid] or
    [..., *grid, *key grid] -> [..., *grid, k], where grid has `axes` sizes: (h', w') or (t', h', w').

    Args:
        op: any operator of kvq_jax.ops.OPS; it gets **options.
        axes: sizes in the query's grid.
        key_axes: sizes in the key's grid, if that is another number (an image that queries a video).
    """
    key_axes = axes if key_axes is None else key_axes
    rows = unfold(query, axes), unfold(key, key_axes), unfold(value, key_axes)
    sizes, key_sizes = query.shape[-axes - 1 : -1], key.shape[-key_axes - 1 : -1]
    if value.shape[-key_axes - 1 : -1] != key_sizes:
        raise ValueError(f"expected keys and values on one grid, got key {key.shape}, value {value.shape}")
    mask = None if mask is None else _unfold_mask(jnp.asarray(mask), rows, sizes, key_sizes)
    return fold(op(*rows, mask=mask, **options), sizes)


def _unfold_mask(
    mask: Array, rows: tuple[Array, Array, Array], sizes: tuple[int, ...], key_sizes: tuple[int, ...]
) -> Array:
    """[..., *key grid] -> [..., N], or [..., *grid, *key grid] -> [..., M, N].

    Which of the two a mask is follows from its number of dimensions, as in kvq_jax.ops.masks.
    """
    query, key, _ = rows
    a, b = len(sizes), len(key_sizes)
    if mask.ndim in (b, key.ndim - 2 + b) and mask.shape[-b:] == key_sizes:
        return mask.reshape(*mask.shape[:-b], -1)
    if mask.ndim == max(query.ndim, key.ndim) - 2 + a + b and mask.shape[-a - b :] == (*sizes, *key_sizes):
        return mask.reshape(*mask.shape[: -a - b], math.prod(sizes), math.prod(key_sizes))
    raise ValueError(
        f"expected a mask [..., {key_sizes}] over keys or [..., {sizes}, {key_sizes}] over queries and keys, "
        f"got {mask.shape}"
    )
