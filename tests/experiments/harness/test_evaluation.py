"""Means and standard errors against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.harness.evaluation import most_parts, over_tasks, part_of, single, summarise


def test_standard_error_is_over_tasks_averaged_over_seeds():
    # Two seeds, three tasks: the tasks' averages are 2, 3, 7, with mean 4 and sample variance 7.
    summary = summarise({"mse": jnp.array([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]])})["mse"]
    assert summary["mean"] == pytest.approx(4.0) and summary["n"] == 3
    assert summary["sem"] == pytest.approx((7 / 3) ** 0.5)
    assert summary["median"] == pytest.approx(3.5)
    assert summary["seeds"] == pytest.approx([3.0, 5.0])


def test_one_task_has_no_error():
    assert summarise({"mse": jnp.array([[2.0]])})["mse"]["sem"] == 0.0


def test_a_single_number_has_no_error():
    assert single(2) == {"mean": 2.0, "sem": 0.0, "median": 2.0, "n": 1, "seeds": [2.0]}
    assert single(float("inf"))["mean"] is None


def test_a_number_that_is_not_finite_is_none():
    summary = summarise({"mse": jnp.array([[1.0, jnp.nan]])})["mse"]
    assert summary["mean"] is None and summary["sem"] is None


@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_batches_of_tasks_do_not_change_the_tasks(batch_size):
    key = jax.random.key(0)
    values = over_tasks(lambda k: jax.random.normal(k, (2,)), key, 7, batch_size)
    expected = [jax.random.normal(k, (2,)) for k in jax.random.split(key, 7)]
    np.testing.assert_array_equal(values, jnp.stack(expected))
    some = over_tasks(lambda k: jax.random.normal(k, (2,)), key, 7, batch_size, jnp.array([2, 3, 5]))
    np.testing.assert_array_equal(some, values[jnp.array([2, 3, 5])])


def test_parts_are_of_whole_batches():
    assert most_parts(10_000, 20) == 20 and most_parts(1000, 200) == 5 and most_parts(60, 20) == 3
    assert most_parts(3, 2) == most_parts(7, 7) == most_parts(5, 8) == 1
    assert most_parts(100, 1, limit=3) == 2


def test_a_part_is_of_every_leaf():
    data = {"x": jnp.arange(6), "y": jnp.arange(12).reshape(6, 2)}
    part = part_of(data, 1, parts=3)
    np.testing.assert_array_equal(part["x"], [2, 3])
    np.testing.assert_array_equal(part["y"], [[4, 5], [6, 7]])
