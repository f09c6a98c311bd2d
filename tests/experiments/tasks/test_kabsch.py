"""The generalised Kabsch task: its sampler, Umeyama's fit and the affine one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tasks.kabsch import Kabsch, affine, umeyama

PLANE = Kabsch(
    dimension=2,
    pairs=5,
    queries=7,
    point_std=1.0,
    angle=(0.0, 2 * np.pi),
    scale=(0.5, 2.0),
    translation_std=1.5,
    noise_std=0.0,
)
SPACE = dataclasses.replace(PLANE, dimension=3)
each_dimension = pytest.mark.parametrize("task", [PLANE, SPACE], ids=["plane", "space"])


def draw(task, number):
    return jax.jit(jax.vmap(lambda key: task.sample(key, None)))(jax.random.split(jax.random.key(0), number))


def linear_parts(tasks):
    """The matrices a R [tasks, d, d] and shifts w of noiseless tasks, by numpy's least squares."""
    ones = np.ones((*tasks.context.x.shape[:2], 1))
    x = np.concatenate([np.float64(tasks.context.x), ones], -1)
    fits = np.linalg.pinv(x) @ np.float64(tasks.context.y)
    return np.swapaxes(fits[:, :-1], 1, 2), fits[:, -1]


@each_dimension
def test_the_sampler_draws_similarities_in_its_ranges(task):
    tasks = draw(task, 2000)
    d = task.dimension
    assert tasks.context.x.shape == tasks.context.y.shape == (2000, 5, d)
    assert tasks.target.x.shape == tasks.target.y.shape == (2000, 7, d)
    matrices, shifts = linear_parts(tasks)
    scales = (
        np.cbrt(np.linalg.det(matrices)) if d == 3 else np.sqrt(np.linalg.det(matrices))
    )  # a rotation's is 1, never -1
    assert np.percentile(scales, [0.5, 50, 99.5]) == pytest.approx([0.5, 1.25, 2.0], abs=0.06)
    rotations = matrices / scales[:, None, None]
    typical = np.median(np.abs(rotations @ np.swapaxes(rotations, 1, 2) - np.eye(d)), 0)
    assert typical.max() < 1e-5
    assert (
        np.abs(np.mean(rotations, 0) - np.eye(d) / 3 * (d == 3)).max() < 0.08
    )  # a whole turn: 0, and in space the axis' part
    assert np.median(np.abs(shifts)) == pytest.approx(0.6745 * 1.5, abs=0.06)
    assert np.std(tasks.context.x) == pytest.approx(1, abs=0.03)


def test_angle_and_noise_are_settings():
    def turned_and_doubled(x):
        return 2 * np.stack([-x[..., 1], x[..., 0]], -1)

    quarter = dataclasses.replace(PLANE, angle=(np.pi / 2, np.pi / 2), scale=(2.0, 2.0), translation_std=0.0)
    noisy = draw(dataclasses.replace(quarter, noise_std=0.1), 1000)
    np.testing.assert_allclose(noisy.target.y, turned_and_doubled(noisy.target.x), atol=1e-5)
    assert np.std(noisy.context.y - turned_and_doubled(noisy.context.x)) == pytest.approx(0.1, abs=0.005)


@each_dimension
def test_without_noise_both_oracles_are_exact(task):
    tasks = draw(task, 300)
    for answer in jax.vmap(task.answers)(tasks).values():
        errors = np.square(answer - tasks.target.y).mean((1, 2))
        assert np.median(errors) < 1e-10 and errors.max() < 1e-3


def test_umeyama_by_hand():
    """Two points say all of a similarity of the plane: a quarter turn, twice as large, moved by (3, 4)."""
    points, images = jnp.array([[0.0, 0], [1, 0]]), jnp.array([[3.0, 4], [3, 6]])
    np.testing.assert_allclose(umeyama(points, images, jnp.array([[0.0, 1], [1, 1]])), [[1, 4], [1, 6]], atol=1e-5)


def test_umeyama_never_mirrors_and_the_affine_fit_may():
    """Mirrored images of three points: the affine fit is exact, the best similarity has det R = 1 and is not."""
    points = jnp.array([[0.0, 0], [1, 0], [0, 1]])
    mirrored = points * jnp.array([-1.0, 1])
    np.testing.assert_allclose(affine(points, mirrored, 2 * points), 2 * mirrored, atol=1e-5)
    corners = umeyama(points, mirrored, points)
    (a, b), (c, d) = corners[1] - corners[0], corners[2] - corners[0]
    assert a * d - b * c > 0.01 and np.abs(corners - mirrored).max() > 0.1


def test_the_affine_fit_recovers_a_shear():
    points, queries = (jax.random.normal(jax.random.key(seed), (6, 3)) for seed in (0, 1))
    matrix, shift = jnp.array([[1.0, 2, 0], [0, 1, -1], [0.5, 0, 3]]), jnp.array([1.0, 2, 3])
    np.testing.assert_allclose(affine(points, points @ matrix + shift, queries), queries @ matrix + shift, atol=1e-3)


def test_the_errors_that_noise_leaves():
    """Of N pairs in d dimensions the affine fit keeps s^2 (1/N + (1 + 1/N) d / (N - d - 2)) (inverse Wishart)."""
    task = dataclasses.replace(PLANE, pairs=12, noise_std=0.1)
    tasks = draw(task, 4000)
    errors = {name: np.square(answer - tasks.target.y).mean() for name, answer in jax.vmap(task.answers)(tasks).items()}
    assert errors["affine"] == pytest.approx(0.01 * (1 / 12 + 13 / 12 * 2 / 8), rel=0.06)
    assert 0 < errors["umeyama"] < 0.7 * errors["affine"]
