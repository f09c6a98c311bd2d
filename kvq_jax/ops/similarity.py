"""Similarities of queries and keys, and mixtures of values, at the highest precision; sums are float32 at least."""

import jax
import jax.numpy as jnp
from jax import Array

from kvq_jax.ops import linalg

# Of this many pairs of a query and a key or more, a CPU finds the gradient of narrow keys or values up to four times as
# fast if it is made as d x N, not N x d: the pairs [M, N] are then read row by row. Narrow is up to 32 columns, or an
# eighth of the rows.
_MANY, _NARROW, _PART = 2**16, 32, 8


def product(letters: str, a: Array, b: Array) -> Array:
    """einsum of two arrays, without TF32 or bfloat16 passes on accelerators."""
    out, compute = linalg.dtypes(a, b)
    a, b = a.astype(out), b.astype(out)
    return jnp.einsum(letters, a, b, precision=linalg.PRECISION, preferred_element_type=compute)


def scores(query: Array, key: Array) -> Array:
    """q'k: [..., M, d], [..., N, d] -> [..., M, N]."""
    return product("...md,...nd->...mn", query, _by_columns(key, query.shape[-2]))


def mix(weights: Array, value: Array) -> Array:
    """sum_n w_mn v_n: [..., M, N], [..., N, k] -> [..., M, k]."""
    return product("...mn,...nk->...mk", weights, _by_columns(value, weights.shape[-2]))


def squared_distance(x: Array, y: Array) -> Array:
    """|x - y|^2: [..., M, d], [..., N, d] -> [..., M, N]; exactly 0 for equal points."""
    return jnp.square(_differences(x, y)).sum(-1)


def absolute_distance(x: Array, y: Array) -> Array:
    """|x - y|_1: [..., M, d], [..., N, d] -> [..., M, N]."""
    return jnp.abs(_differences(x, y)).sum(-1)


def _differences(x: Array, y: Array) -> Array:
    _, compute = linalg.dtypes(x, y)
    return x.astype(compute)[..., :, None, :] - y.astype(compute)[..., None, :, :]


def _by_columns(rows: Array, queries: int) -> Array:
    """The rows [..., N, d] themselves, through their transpose where that makes the gradient cheaper: see _MANY."""
    n, d = rows.shape[-2:]
    narrow = d < n and d <= max(_NARROW, min(n, queries) // _PART)
    if narrow and n * queries >= _MANY and jax.default_backend() == "cpu":
        return linalg.transpose(linalg.left(rows))
    return rows
