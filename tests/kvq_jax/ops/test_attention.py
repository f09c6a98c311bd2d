"""Numbers and options of the attention operators; the laws they share are in test_laws.py."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.ops import laplace_attention, linear_attention, softmax_attention, uniform_attention


def draw(*shapes, seed=0, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def test_softmax_by_hand():
    # exp(log 3) : exp(0) = 3 : 1
    out = softmax_attention(jnp.array([[1.0]]), jnp.array([[jnp.log(3.0)], [0.0]]), jnp.array([[1.0, 4.0], [5.0, 0.0]]))
    np.testing.assert_allclose(out, [[2.0, 3.0]], rtol=1e-6)


def test_softmax_scale_is_one_and_flax_agrees_under_its_own():
    q, k, v = draw((2, 3, 1, 4), (2, 5, 1, 4), (2, 5, 1, 6))
    heads_out = lambda x: x[:, :, 0]
    expected = heads_out(nn.dot_product_attention(q, k, v))
    ours = softmax_attention(heads_out(q), heads_out(k), heads_out(v), scale=4 ** -0.5)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(softmax_attention(2 * heads_out(q), heads_out(k), heads_out(v), scale=0.25), expected,
                               rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op, option", [(softmax_attention, "scale"), (laplace_attention, "length_scale")])
def test_an_array_option_is_one_number_per_leading_index(op, option):
    q, k, v = draw((2, 3, 2), (2, 5, 2), (2, 5, 4))
    numbers = [0.5, 2.0]
    expected = jnp.stack([op(q[i], k[i], v[i], **{option: x}) for i, x in enumerate(numbers)])
    np.testing.assert_allclose(op(q, k, v, **{option: jnp.array(numbers)}), expected, rtol=1e-5, atol=1e-6)
    grad = jax.jit(jax.grad(lambda x: op(q, k, v, **{option: x}).sum()))(jnp.array(numbers))
    assert np.isfinite(grad).all() and grad.any()


def test_softmax_of_large_scores_is_finite():
    q, k, v = draw((3, 2), (5, 2), (5, 4))
    assert np.isfinite(softmax_attention(1e4 * q, 1e4 * k, v)).all()


@pytest.mark.parametrize("m, n, d, k", [(9, 11, 1, 1), (2, 3, 8, 8)])
def test_linear_attention_in_either_order(m, n, d, k):
    q, key, v = draw((m, d), (n, d), (n, k))
    np.testing.assert_allclose(linear_attention(q, key, v), (q @ key.T) @ v, rtol=1e-4, atol=1e-4)
    keep = jnp.arange(n) % 2 == 0
    np.testing.assert_allclose(linear_attention(q, key, v, mask=keep), (q @ key[keep].T) @ v[keep], rtol=1e-4, atol=1e-4)


def test_laplace_by_hand():
    # Distances 0 and log 3, in the metric of the first norm.
    key = jnp.array([[0.0, 0.0], [0.5 * jnp.log(3.0), -0.5 * jnp.log(3.0)]])
    np.testing.assert_allclose(laplace_attention(jnp.zeros((1, 2)), key, jnp.array([[4.0], [0.0]])), [[3.0]], rtol=1e-6)


def test_laplace_attends_to_the_nearest_key_as_the_scale_shrinks():
    q, k, v = draw((3, 2), (5, 2), (5, 4))
    nearest = jnp.abs(q[:, None] - k[None]).sum(-1).argmin(-1)
    np.testing.assert_allclose(laplace_attention(q, k, v, length_scale=1e-4), v[nearest], rtol=1e-6)
    with pytest.raises(ValueError, match="length_scale must be positive"):
        laplace_attention(q, k, v, length_scale=0.0)


def test_uniform_is_the_mean_whatever_the_keys_hold():
    q, k, v = draw((3, 2), (5, 2), (5, 4))
    k = k * jnp.nan
    np.testing.assert_allclose(uniform_attention(q, k, v), np.tile(v.mean(0), (3, 1)), rtol=1e-6, atol=1e-6)
    mask = jnp.array([[True, True, False, False, False], [False] * 5, [True] * 5])
    expected = [v[:2].mean(0), 0 * v[0], v.mean(0)]
    np.testing.assert_allclose(uniform_attention(q, k, v, mask=mask), expected, rtol=1e-6, atol=1e-6)
