"""States that forget: windows, fading and the recursive inverse are exact weighted least squares."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvq_jax.ops import streaming
from tests.kvq_jax.ops.streams import BATCH, FADING, D, K, N, close, draw, make, trees_close


def numpy_ridge(k, v, c, alpha):
    k, v = np.asarray(k, np.float64), np.asarray(v, np.float64)
    return np.linalg.solve(k.T @ (c[:, None] * k) + alpha * np.eye(k.shape[1]), k.T @ (c[:, None] * v))


@pytest.mark.parametrize("name", [*FADING, "erf"])
def test_forget_undoes_update(name, x64):
    q, k, v = draw(8)
    stream, mask = make(name, q), jnp.arange(5) != 2

    @jax.jit
    def update_and_forget():
        kept = stream.update(stream.init(D, K), k[5:], v[5:])
        return kept, stream.forget(stream.update(kept, k[:5], v[:5], mask), k[:5], v[:5], mask)

    trees_close(*update_and_forget(), 1e-13)

    @jax.jit
    def slide(state, i):
        """A window of four keys."""
        row = lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, 1)
        state = stream.update(state, row(k, i), row(v, i))
        return stream.forget(state, row(k, i - 4), row(v, i - 4), (i >= 4)[None])

    state = stream.init(D, K, dtype=np.float64)
    for i in range(N):
        state = slide(state, jnp.asarray(i))
    close(jax.jit(stream.read)(state), BATCH[name](q, k[-4:], v[-4:]), 1e-11)


def test_forgetting_what_has_faded(x64):
    _, k, v = draw(9)
    stream = streaming.intention_stream(forgetting=0.7)
    state = stream.update(stream.init(D, K), k, v)
    state = stream.forget(state, k[:1], v[:1], weight=0.7 ** jnp.array([N - 1.0]))
    trees_close(state[1:], stream.update(stream.init(D, K), k[1:], v[1:])[1:])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**16),
    factor=st.sampled_from([0.5, 0.9, 1.0]),
    keep=st.lists(st.booleans(), min_size=N, max_size=N),
    cut=st.sampled_from([0, 3, 6, 9]),
)
def test_weights_and_forgetting_are_weighted_least_squares(seed, factor, keep, cut):
    """Against NumPy: weights times l^(n - i), n the points that are not masked; sums, and the recursive inverse."""
    with jax.enable_x64(True):
        _, k, v = draw(seed)
        keep, weight = np.asarray(keep), np.random.default_rng(seed).choice([0, 0.3, 1, 4], N)
        later = keep.sum() - np.cumsum(keep)
        c = weight * keep * factor**later
        update, merge, rls = least_squares(factor)
        states = []
        for part in (slice(0, cut), slice(cut, N)):
            state = streaming.intention_stream().init(D, K, dtype=np.float64)
            for i in range(part.start, part.stop, 3):
                rows = slice(i, i + 3)
                state = update(state, k[rows], v[rows], keep[rows], weight[rows])
            states.append(state)
        close(streaming.weights(merge(*states), alpha=0.3), numpy_ridge(k, v, c, 0.3), 1e-11)

        state = streaming.rls_init(D, K, alpha=0.3, dtype=np.float64)
        for i in range(0, N, 3):
            state = rls(state, k[i : i + 3], v[i : i + 3], keep[i : i + 3], weight[i : i + 3])
        faded = 0.3 * factor ** keep.sum()
        close(state.weights, numpy_ridge(k, v, c, faded), 1e-8)
        close(state.inverse @ (np.asarray(k).T @ (c[:, None] * k) + faded * np.eye(D)), np.eye(D), 1e-8)


@functools.cache
def least_squares(factor):
    stream = streaming.intention_stream(forgetting=factor)
    return (
        jax.jit(stream.update),
        jax.jit(stream.merge),
        jax.jit(functools.partial(streaming.rls_update, forgetting=factor)),
    )


def test_a_prior_fades_as_in_recursive_least_squares(x64):
    q, k, v = draw(10)
    stream = streaming.intention_stream(q, forgetting=0.9)
    state = streaming.Moments(jnp.ones(()), 0.3 * jnp.eye(D), jnp.zeros((D, K)))
    recursive = streaming.rls_init(D, K, alpha=0.3, dtype=np.float64)
    step = jax.jit(functools.partial(streaming.rls_update, forgetting=0.9))
    for i in range(N):  # one point at a time: the textbook update
        recursive = step(recursive, k[i : i + 1], v[i : i + 1])
    close(streaming.rls_read(recursive, q), stream.read(stream.update(state, k, v), alpha=0), 1e-10)


def test_recursive_inverse_lasts():
    """A thousand single points in float32: the inverse stays symmetric and the weights right."""
    rng = np.random.default_rng(0)
    k, v = (jnp.asarray(rng.normal(size=(1000, n)), np.float32) for n in (8, 2))
    step = lambda state, row: (streaming.rls_update(state, row[0][None], row[1][None], forgetting=0.99), None)
    state, _ = jax.jit(lambda s: jax.lax.scan(step, s, (k, v)))(streaming.rls_init(8, 2, alpha=1.0))
    c = 0.99 ** np.arange(999, -1, -1.0)
    close(state.weights, numpy_ridge(k, v, c, 0.99**1000), 1e-4)
    assert (state.inverse == state.inverse.T).all()


def test_many_points_at_once_are_forgotten_like_one_after_the_other():
    """0.9^1000 and even 0.9^800 are no numbers in float32."""
    key = jnp.asarray(np.random.default_rng(3).normal(size=(2, 1000, 2)), jnp.float32)
    value, mask = key @ jnp.array([[1.0], [2.0]]), jnp.arange(1000) % 7 != 0
    add = jax.jit(functools.partial(streaming.rls_update, forgetting=0.9))
    start = streaming.rls_init(2, 1, batch=(2,))
    whole = add(start, key, value, mask)
    parts = start
    for part in range(10):
        rows = slice(100 * part, 100 * part + 100)
        parts = add(parts, key[:, rows], value[:, rows], mask[rows])
    np.testing.assert_allclose(whole.weights, [[[1.0], [2.0]]] * 2, rtol=1e-3)
    np.testing.assert_allclose(whole.inverse, parts.inverse, rtol=1e-3, atol=1e-5)
    nobody = add(streaming.rls_init(2, 1, batch=(0,)), key[:0], value[:0], mask)
    assert nobody.weights.shape == (0, 2, 1)


@pytest.mark.parametrize(
    "n, d, factor", [(1000, 8, 1.0), (256, 3, 1.0), (64, 1, 1.0), (64, 3, 0.7), (64, 3, 0.3), (128, 40, 0.9)]
)
def test_points_at_once_round_no_more_than_one_after_the_other(n, d, factor):
    """In float32, with the ridge 1e-3 that is the default: weights and inverse."""
    rng = np.random.default_rng(0)
    k = rng.normal(size=(n, d))
    v = k @ rng.normal(size=(d, 2)) + 0.1 * rng.normal(size=(n, 2))
    c, faded = factor ** np.arange(n - 1, -1, -1.0), 1e-3 * factor**n
    exact = np.linalg.inv(k.T @ (c[:, None] * k) + faded * np.eye(d)), numpy_ridge(k, v, c, faded)
    k, v = jnp.asarray(k, jnp.float32), jnp.asarray(v, jnp.float32)
    add = functools.partial(streaming.rls_update, forgetting=factor)
    start = streaming.rls_init(d, 2)
    single, _ = jax.lax.scan(lambda state, row: (add(state, *row), None), start, (k[:, None], v[:, None]))
    for right, one, at_once in zip(exact, single, add(start, k, v)):
        error, bound = (np.abs(found - right).max() / np.abs(right).max() for found in (at_once, one))
        assert error < 10 * bound + 1e-6
