"""The MLP baseline: the paper's size, each query alone, its order of the context."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import MLPRegressor, Points

KEYS = jax.random.split(jax.random.key(0), 4)
X, Y, Q = (jax.random.normal(key, shape) for key, shape in zip(KEYS, ((3, 5, 2), (3, 5, 2), (3, 7, 2))))
MODEL = MLPRegressor((16, 16))
VARIABLES = MODEL.init(KEYS[3], Points(X, Y), Q)


def apply(x, y, mask, q):
    return MODEL.apply(VARIABLES, Points(x, y, mask), q)


def test_the_published_size():
    """Appendix 7: [256, 256, 256] and the outputs of one query; 5 pairs of plane points and a query are 22 inputs."""
    shapes = jax.eval_shape(MLPRegressor().init, KEYS[0], Points(X[0], Y[0]), Q[0])
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 22 * 256 + 256 + 2 * (256 * 256 + 256) + 256 * 2 + 2


def test_it_is_one_network_of_the_row_of_everything():
    layers = [VARIABLES["params"]["decoder"][f"layer_{index}"] for index in range(3)]
    row = jnp.concatenate([jnp.concatenate([X[1], Y[1]], -1).ravel(), Q[1, 4]])
    for index, layer in enumerate(layers):
        row = row @ layer["kernel"] + layer["bias"]
        row = jax.nn.relu(row) if index < 2 else row
    np.testing.assert_allclose(apply(X, Y, None, Q)[1, 4], row, rtol=1e-5, atol=1e-6)


def test_a_masked_point_is_a_point_of_zeros_and_order_matters():
    mask = jnp.arange(5) < 3
    zeroed = [jnp.where(mask[:, None], part, 0) for part in (X, Y)]
    np.testing.assert_allclose(apply(X, Y, jnp.broadcast_to(mask, (3, 5)), Q), apply(*zeroed, None, Q), rtol=1e-6)
    assert np.abs(apply(X, Y, None, Q) - apply(X[:, ::-1], Y[:, ::-1], None, Q)).max() > 1e-2


def test_another_number_of_points_is_refused():
    with pytest.raises(ValueError, match="fixed the number of context points at 5: got 4"):
        apply(X[:, :4], Y[:, :4], None, Q)
