"""The Intention map of Appendix 9: three scalings, and its variance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.ops.scaling import intention_map, map_variance
from tests.kvq_jax.ops.reference import close


def draw(shape, seed=0, dtype=np.float64):
    m, n, d = shape
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(m, d)), dtype), jnp.asarray(rng.normal(size=(n, d)), dtype)


def test_formulas(x64):
    q, k = draw((3, 4, 9))
    plain = q @ k.T @ np.linalg.inv(k @ k.T)
    close(intention_map(q, k), plain)
    close(intention_map(q, k, scaling="sqrt"), 3 * plain)
    close(intention_map(q, k, scaling="sigmoid"), 3 * q @ k.T @ np.linalg.inv(k @ k.T + np.eye(4)))
    s = 1 / (1 + np.exp(-0.7))
    expected = 1.5 * q @ k.T @ np.linalg.inv(s * k @ k.T + (1 - s) * np.eye(4))
    close(intention_map(q, k, scaling="sigmoid", theta=0.7), expected)
    assert jax.grad(lambda t: (intention_map(q, k, scaling="sigmoid", theta=t) ** 2).sum())(0.0) != 0


def test_variance_by_hand():
    close(map_variance(1, 7), 1 / 5)
    close(map_variance(16, np.array([4, 15, 16, 17, 26])), [4 / (16 * 11), np.inf, np.inf, np.inf, 1 / 9])
    assert 100000 * map_variance(16, 100000) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("n, d", [(4, 12), (8, 24), (12, 4)])
def test_variance_by_sampling(n, d):
    keys = jax.random.normal(jax.random.key(0), (4000, n, d))
    queries = jax.random.normal(jax.random.key(1), (4000, n, d))
    measured = float(jnp.square(jax.jit(intention_map)(queries, keys)).mean())
    assert measured == pytest.approx(float(map_variance(n, d)), rel=0.05)


def test_unknown_scaling():
    q, k = draw((3, 4, 9), dtype=np.float32)
    with pytest.raises(ValueError, match="unknown scaling 'half'"):
        intention_map(q, k, scaling="half")
