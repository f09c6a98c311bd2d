"""Pooling of a set."""

import jax.numpy as jnp
from jax import Array

from kvq_jax.ops import uniform_attention


def set_mean(rows: Array, mask: Array | None = None) -> Array:
    """The mean of the rows [..., N, k] that mask [..., N] keeps (True = take part), [..., 1, k]; zero if it keeps none.

    The op 'uniform' with one query: the aggregation of a neural process (Garnelo et al. 2018, arXiv 1807.01622).
    """
    return uniform_attention(jnp.zeros((1, rows.shape[-1]), rows.dtype), rows, rows, mask=mask)
