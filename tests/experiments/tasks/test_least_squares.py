"""Least squares as a task: its sampler and its oracle."""

import jax
import numpy as np
import pytest

from experiments.tasks import least_squares


def draw(tasks, **sizes):
    task = least_squares.LeastSquares(**sizes)
    return jax.jit(jax.vmap(lambda key: task.sample(key, None)))(jax.random.split(jax.random.key(0), tasks))


def test_the_sampler_draws_unit_normals_and_their_products():
    tasks = draw(5000, points=10, dimension=3)
    assert (tasks.x.shape, tasks.y.shape, tasks.weights.shape) == ((5000, 10, 3), (5000, 10, 1), (5000, 3))
    np.testing.assert_allclose(tasks.y[..., 0], np.einsum("tnd,td->tn", tasks.x, tasks.weights), atol=1e-5)
    for sample in (tasks.x.reshape(-1, 3), tasks.weights):
        bound = 5 / np.sqrt(len(sample))  # five standard errors, or more than three of a variance
        np.testing.assert_allclose(sample.mean(0), np.zeros(3), atol=bound)
        np.testing.assert_allclose(np.cov(sample.T), np.eye(3), atol=bound)
    assert abs(np.corrcoef(tasks.x[:, 0, 0], tasks.weights[:, 0])[0, 1]) < 5 / np.sqrt(5000)


@pytest.mark.parametrize("points, dimension", [(10, 2), (10, 6), (4, 3)])
def test_the_oracle_is_exact_and_is_numpys(points, dimension):
    tasks = draw(50, points=points, dimension=dimension)
    found = jax.vmap(least_squares.oracle)(tasks)
    expected = [np.linalg.lstsq(np.float64(x), np.float64(y[:, 0]))[0] for x, y in zip(tasks.x, tasks.y)]
    assert np.median(np.abs(found - np.array(expected))) < 1e-6
    assert np.median(np.abs(found - tasks.weights)) < 1e-6


def test_with_fewer_points_than_dimensions_the_oracle_finds_the_part_that_the_points_span():
    tasks = draw(2000, points=2, dimension=4)
    missed = np.square(jax.vmap(least_squares.oracle)(tasks) - tasks.weights).mean()
    assert abs(missed - 0.5) < 0.05
