"""Landmarks of Nystroem features that are chosen: the pivots among the keys that are there, whatever their order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.ops import kernel_intention, nystroem_intention
from kvq_jax.ops.features import greedy_landmarks
from kvq_jax.ops.kernels import KERNELS, bind

CLUSTERS = 6


def draw(n=40, d=3, m=5, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((m, d), (n, d), (n, 2))]


def clustered(seed=0):
    """Keys in a few tight clusters, of which most hold a key or two: random landmarks miss some."""
    rng = np.random.default_rng(seed)
    sizes = [30, 2, 1, 2, 1, 4]
    centres = 4 * rng.normal(size=(CLUSTERS, 2))
    key = np.concatenate([c + 0.05 * rng.normal(size=(size, 2)) for c, size in zip(centres, sizes)])
    value = np.concatenate([np.full((size, 1), i % 2 * 2.0 - 1) for i, size in enumerate(sizes)])
    return jnp.asarray(key, jnp.float32), jnp.asarray(value, jnp.float32), centres


@functools.partial(jax.jit, static_argnames=("count", "kernel"))
def landmarks(key, keep=None, count=5, kernel="gaussian", gamma=0.5):
    keep = None if keep is None else keep[..., None].astype(key.dtype)
    return greedy_landmarks(bind(kernel, gamma, key, keep), key, keep, count)


def as_set(points):
    return sorted(map(tuple, np.asarray(points)))


def pivoted_cholesky(gram, count):
    """Pivots by the definition: the largest remaining diagonal of the Schur complement."""
    rest, pivots = np.array(gram, np.float64), []
    for _ in range(count):
        pivot = int(np.argmax(np.diagonal(rest)))
        pivots.append(pivot)
        rest = rest - np.outer(rest[:, pivot], rest[pivot]) / rest[pivot, pivot]
    return pivots


@pytest.mark.parametrize("n", [1, 6, 16])
def test_up_to_sixteen_keys_are_all_landmarks(n):
    q, k, v = draw(n)
    expected = jax.jit(functools.partial(kernel_intention, alpha=0.1))(q, k, v)
    np.testing.assert_allclose(jax.jit(functools.partial(nystroem_intention, alpha=0.1))(q, k, v), expected, atol=2e-3)
    every = jax.jit(functools.partial(nystroem_intention, alpha=0.1, landmarks=None))(q, k, v)
    np.testing.assert_allclose(jax.jit(functools.partial(nystroem_intention, alpha=0.1))(q, k, v), every, atol=1e-6)


def test_landmarks_are_the_pivots():
    _, key, _ = draw()
    points, there = landmarks(key, kernel="linear")  # a diagonal without ties; rank 3
    pivots = pivoted_cholesky(np.asarray(key) @ np.asarray(key).T, 3)
    np.testing.assert_array_equal(points[:3], key[jnp.array(pivots)])
    np.testing.assert_array_equal(there[:, 0], [1, 1, 1, 0, 0])


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_choice_does_not_depend_on_the_order_of_the_keys(kernel):
    grid = jnp.stack(jnp.meshgrid(jnp.linspace(-1, 1, 6), jnp.linspace(-1, 1, 6)), -1).reshape(36, 2)  # full of ties
    for key in (draw()[1], grid):
        expected = landmarks(key, kernel=kernel)
        for seed in range(4):
            found = landmarks(jax.random.permutation(jax.random.key(seed), key), kernel=kernel)
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])


def test_output_does_not_depend_on_the_order_of_the_keys():
    q, k, v = draw(60)
    op = jax.jit(nystroem_intention)
    order = jax.random.permutation(jax.random.key(0), 60)
    np.testing.assert_allclose(op(q, k[order], v[order]), op(q, k, v), atol=1e-3)


def test_masked_keys_are_never_landmarks_and_are_absent():
    _, key, _ = draw()
    keep = jax.random.bernoulli(jax.random.key(0), 0.4, (40,))
    points, there = landmarks(key, keep, count=8)
    assert there.all() and set(as_set(points)) <= set(as_set(key[keep]))
    alone, _ = landmarks(key[keep], count=8)
    assert as_set(points) == as_set(alone)
    few = jnp.arange(40) < 3
    points, there = landmarks(key, few, count=8)  # fewer are left
    assert as_set(points[there[:, 0] > 0]) == as_set(key[:3])
    assert not landmarks(key, jnp.zeros(40, bool), count=8)[1].any()


def test_repeated_keys_are_chosen_once():
    _, key, _ = draw(4)
    points, there = landmarks(jnp.tile(key, (5, 1)), count=8)
    assert as_set(points[there[:, 0] > 0]) == as_set(key)


def test_a_mask_for_each_query_and_batches_are_loops():
    q, k, v = draw(30, m=4)
    mask = jax.random.bernoulli(jax.random.key(1), 0.7, (4, 30))
    op = jax.jit(functools.partial(nystroem_intention, landmarks=5, alpha=0.1, gamma=0.5))
    each = op(q, k, v, mask=mask)
    for row in range(4):
        np.testing.assert_allclose(each[row], op(q[row : row + 1], k, v, mask=mask[row])[0], atol=1e-4)
    sets = [draw(30, m=4, seed=seed) for seed in range(3)]
    together = op(*(jnp.stack(x) for x in zip(*sets)), mask=mask[:3])
    mapped = jax.vmap(lambda q, k, v, mask: op(q, k, v, mask=mask))(*(jnp.stack(x) for x in zip(*sets)), mask[:3])
    for i, (q, k, v) in enumerate(sets):
        alone = op(q, k, v, mask=mask[i])
        np.testing.assert_allclose(together[i], alone, atol=1e-4)
        np.testing.assert_allclose(mapped[i], alone, atol=1e-4)


def test_a_width_for_each_batch_over_shared_keys():
    q, k, v = draw(30)
    gamma = jnp.array([0.1, 1.0])
    op = jax.jit(functools.partial(nystroem_intention, landmarks=5, alpha=0.1))
    together = op(jnp.stack([q, q]), k, v, gamma=gamma)
    for i in range(2):
        np.testing.assert_allclose(together[i], op(q, k, v, gamma=gamma[i]), atol=1e-4)


def test_gradients_pass_by_the_choice():
    q, k, v = draw(30)
    loss = lambda k, a, g: jnp.square(nystroem_intention(q, k, v, landmarks=5, alpha=a, gamma=g)).sum()
    fixed = lambda k, a, g, index: jnp.square(nystroem_intention(q, k, v, landmarks=k[index], alpha=a, gamma=g)).sum()
    points, _ = landmarks(k, gamma=0.4)
    index = jnp.array([int(jnp.argmax((k == p).all(-1))) for p in points])
    found = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(k, 0.3, 0.4)
    expected = jax.jit(jax.grad(fixed, argnums=(0, 1, 2)))(k, 0.3, 0.4, index)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)


def test_is_nearer_to_all_keys_than_random_draws_on_clusters():
    key, value, centres = clustered()
    query = jnp.asarray(centres, jnp.float32)
    options = dict(alpha=1e-2, gamma=1.0)
    exact = kernel_intention(query, key, value, **options)
    op = jax.jit(functools.partial(nystroem_intention, landmarks=CLUSTERS, **options))
    error = lambda out: float(jnp.abs(out - exact).max())
    drawn = [error(op(query, key, value, rng=jax.random.key(seed))) for seed in range(10)]
    assert error(op(query, key, value)) < 0.1 < 0.5 < min(drawn)
