"""The mean of a set, by hand."""

import jax.numpy as jnp
import numpy as np

from kvq_jax.nn import set_mean


def test_set_mean():
    rows = jnp.array([[1.0, 2.0], [3.0, 6.0], [9.0, 9.0]])
    np.testing.assert_allclose(set_mean(rows), rows.mean(0, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(set_mean(rows, jnp.array([True, True, False])), [[2.0, 4.0]], rtol=1e-6)
    np.testing.assert_array_equal(set_mean(rows, jnp.zeros(3, bool)), [[0.0, 0.0]])
