"""A small regression task with a mask, for the tests of few-shot regressors."""

import jax
import numpy as np

from kvq_jax.models import Points

N, M = 6, 4


def tasks(*leading, dx=2, dy=3):
    """A context with a mask, and target_x."""
    keys = jax.random.split(jax.random.key(1), 4)
    context = Points(
        jax.random.uniform(keys[0], (*leading, N, dx), minval=-1),
        jax.random.normal(keys[1], (*leading, N, dy)),
        jax.random.bernoulli(keys[2], 0.6, (*leading, N)).at[..., 0].set(True),
    )
    return context, jax.random.uniform(keys[3], (*leading, M, dx), minval=-1)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)
