"""Encoders of pairs around an op: sizes by hand, laws of a regression, and the formula written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import PairRegressor, Points
from kvq_jax.nn import MLP
from kvq_jax.ops import intention_weights

KEY = jax.random.key(0)
N, M = 6, 4
SMALL = {
    "intention": PairRegressor((8,), (7,), (8,), (5,)),
    "attention": PairRegressor(
        (8,), (7,), (6,), (5,), op=dict(name="informer", alpha=0.5, alpha_kind="sigmoid"), num_heads=3, head_features=2
    ),
}
each_model = pytest.mark.parametrize("name", SMALL)


def task():
    keys = jax.random.split(jax.random.key(1), 3)
    return jax.random.normal(keys[0], (N, 2)), jax.random.normal(keys[1], (N, 3)), jax.random.normal(keys[2], (M, 2))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)


def linear(a, b):
    return a * b + b


def test_counts_of_the_models_of_the_kabsch_task():
    """Appendix 7: e_K and e_V of pairs in the plane, e_Q of points, e_P; attention has five heads, here of 128."""
    encoders = lambda width: 2 * linear(4, width) + linear(2, width) + 3 * linear(width, width)  # noqa: E731
    decoder = lambda width: 2 * linear(width, width) + linear(width, 2)  # noqa: E731
    heads = 3 * linear(256, 640) + linear(640, 640) + linear(640, 256) - linear(256, 256)
    wide = dict.fromkeys(("key_features", "value_features", "query_features", "decoder_features"), (256, 256))
    attention = PairRegressor(**wide, op="softmax", num_heads=5, head_features=128, scaling="head")
    counts = encoders(128) + decoder(128) + 1, encoders(256) + decoder(256) + heads
    for model, count in zip((PairRegressor(), attention), counts):
        points, queries = jnp.zeros((5, 2)), jnp.zeros((7, 2))
        prediction, variables = jax.eval_shape(model.init_with_output, KEY, Points(points, points), queries)
        assert prediction.shape == (7, 2) and sum(leaf.size for leaf in jax.tree.leaves(variables)) == count


@each_model
def test_a_set_of_pairs_with_queries_one_by_one(name):
    """The order of the pairs and what stands in masked places change nothing, and queries change no other query."""
    model, (x, y, target), mask = SMALL[name], task(), jnp.arange(N) < 4
    order = np.array([3, 1, 5, 0, 2, 4])
    spoilt_x, spoilt_y = jnp.where(mask[:, None], x, 7), jnp.where(mask[:, None], y, -9)
    variants = [(x, y, mask), (x[order], y[order], mask[order]), (spoilt_x, spoilt_y, mask), (x, y, mask & False)]
    contexts = [jnp.stack(part) for part in zip(*variants)]
    targets = jnp.stack([target, target, target.at[0].set(5), target])
    variables = jax.jit(model.init)(KEY, Points(x, y, mask), target)
    prediction, permuted, spoilt, nothing = jax.jit(model.apply)(variables, Points(*contexts), targets)
    assert prediction.shape == (M, 3) and prediction.dtype == jnp.float32
    close(permuted, prediction)
    close(spoilt[1:], prediction[1:])
    assert np.isfinite(nothing).all() and np.abs(nothing - prediction).max() > 1e-3


@each_model
def test_every_parameter_learns(name):
    model, (x, y, target) = SMALL[name], task()
    variables = jax.jit(model.init)(KEY, Points(x, y), target)
    gradients = jax.jit(jax.grad(lambda v: jnp.sum(jnp.square(model.apply(v, Points(x, y), target) - 1))))(variables)
    for path, leaf in jax.tree.leaves_with_path(gradients):
        assert np.isfinite(leaf).all() and np.abs(leaf).max() > 0, jax.tree_util.keystr(path)


def test_intention_of_encoded_pairs_written_out():
    model, (x, y, target) = SMALL["intention"], task()
    pairs = jnp.concatenate([x, y], -1)

    @jax.jit
    def by_hand(params):
        key, value, query = (
            MLP((width,)).apply({"params": params[f"{name}_encoder"]}, rows)
            for name, width, rows in (("key", 8, pairs), ("value", 7, pairs), ("query", 8, target))
        )
        read = query @ intention_weights(key, value, alpha=jax.nn.softplus(params["mixer"]["alpha"]["theta"]))
        return MLP((5, 3)).apply({"params": params["decoder"]}, read)

    prediction, variables = jax.jit(model.init_with_output)(KEY, Points(x, y), target)
    close(prediction, by_hand(variables["params"]))


def test_shapes_are_checked():
    x, y, target = task()
    with pytest.raises(ValueError, match="num_heads=5 needs head_features"):
        PairRegressor(num_heads=5).init(KEY, Points(x, y), target)
    with pytest.raises(ValueError, match="context.x and target_x differ"):
        jax.eval_shape(SMALL["intention"].init, KEY, Points(x, y), target[:, :1])
