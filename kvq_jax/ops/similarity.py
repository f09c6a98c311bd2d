"""Similarities of queries and keys, and mixtures of values, at the highest precision; sums are float32 at least."""

import jax.numpy as jnp
from jax import Array

from kvq_jax.ops import linalg


def product(letters: str, a: Array, b: Array) -> Array:
    """einsum of two arrays, without TF32 or bfloat16 passes on accelerators."""
    out, compute = linalg.dtypes(a, b)
    a, b = a.astype(out), b.astype(out)
    return jnp.einsum(letters, a, b, precision=linalg.PRECISION, preferred_element_type=compute)


def scores(query: Array, key: Array) -> Array:
    """q'k: [..., M, d], [..., N, d] -> [..., M, N]."""
    return product("...md,...nd->...mn", query, key)


def mix(weights: Array, value: Array) -> Array:
    """sum_n w_mn v_n: [..., M, N], [..., N, k] -> [..., M, k]."""
    return product("...mn,...nk->...mk", weights, value)


def squared_distance(x: Array, y: Array) -> Array:
    """|x - y|^2: [..., M, d], [..., N, d] -> [..., M, N]; exactly 0 for equal points."""
    return jnp.square(_differences(x, y)).sum(-1)


def absolute_distance(x: Array, y: Array) -> Array:
    """|x - y|_1: [..., M, d], [..., N, d] -> [..., M, N]."""
    return jnp.abs(_differences(x, y)).sum(-1)


def _differences(x: Array, y: Array) -> Array:
    _, compute = linalg.dtypes(x, y)
    return x.astype(compute)[..., :, None, :] - y.astype(compute)[..., None, :, :]
