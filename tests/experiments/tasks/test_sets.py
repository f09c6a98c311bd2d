"""Tasks on sets: the maximum and its absent elements; mixtures, whose likelihood the Set Transformer prints."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.tasks.maximum import Maximum
from experiments.tasks.mixtures import Mixtures
from kvq_jax.models.mixture import log_likelihood

MAXIMUM = Maximum(min_size=1, max_size=10, low=0.0, high=100.0, integers=False)
SMALL = Mixtures(min_size=100, max_size=500, clusters=4, dimension=2, position=(-4.0, 4.0), std=0.3)


def many(function, count, seed=0):
    return jax.jit(jax.vmap(function))(jax.random.split(jax.random.key(seed), count))


@pytest.mark.parametrize("integers", [False, True])
def test_the_maximum_is_that_of_the_elements_there(integers):
    low, high = (1.0, 99.0) if integers else (0.0, 100.0)
    task = dataclasses.replace(MAXIMUM, low=low, high=high, integers=integers)
    sets = many(lambda key: task.sample(key, None), 3000)
    sizes = np.asarray(sets.mask.sum(-1))
    assert set(sizes.tolist()) == set(range(1, 11))
    assert abs(sizes.mean() - 5.5) < 4 * np.sqrt(99 / 12 / 3000)
    x, there = np.asarray(sets.x[..., 0]), np.asarray(sets.mask)
    np.testing.assert_array_equal(sets.truth, np.where(there, x, -1).max(1))
    assert (x[~there] == 0).all() and (x[there] >= low).all() and (x[there] <= high).all()
    assert ((x[there] % 1 == 0).all() and x[there].max() == high) == integers
    assert abs(x[there].mean() - (low + high) / 2) < 1.0


def test_sets_of_a_shared_size():
    """Slots that are all filled need no mask; others hide what is not there, from the truth too."""
    drawn = MAXIMUM.draw(jax.random.key(0), None)
    whole, part = MAXIMUM.fill(drawn, (4, 0), None), MAXIMUM.fill(drawn, (4, 0), (2, 0))
    assert whole.mask is None and whole.x.shape == (4, 1) and whole.truth == drawn.x[:4].max()
    assert part.mask.tolist() == [True, True, False, False] and part.truth == drawn.x[:2].max()
    law = SMALL.law
    assert law.slots == (500, 0) and law.probability.sum() == pytest.approx(1)
    points = SMALL.fill(SMALL.draw(jax.random.key(0), None), (120, 0), (110, 0))
    assert points.x.shape == (120, 2) and points.truth.component.shape == (120,) and points.mask.sum() == 110


def test_points_are_of_their_component():
    task = dataclasses.replace(SMALL, min_size=500)
    sets = many(lambda key: task.sample(key, None), 200)
    mixture, component = sets.truth.mixture, np.asarray(sets.truth.component)
    own = np.take_along_axis(np.asarray(mixture.mean), component[..., None].astype(int), 1)
    away = (np.asarray(sets.x) - own) / 0.3
    np.testing.assert_allclose([away.mean(), away.var()], [0, 1], atol=0.01)
    weight = np.exp(mixture.log_weight)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-5)
    # Dirichlet(1, 1, 1, 1): means of 1/4, variances of 3/80.
    np.testing.assert_allclose(weight.mean(0), 0.25, atol=4 * np.sqrt(3 / 80 / 200))
    counted = (component[..., None] == np.arange(4)).mean(1)
    assert np.abs(counted - weight).max() < 5 * 0.5 / np.sqrt(500)
    assert np.abs(mixture.mean).max() <= 4 and abs(np.asarray(mixture.mean).var() - 64 / 12) < 0.5


@pytest.mark.parametrize("clusters, published", [(4, -1.4726), (6, -1.8202)])
def test_the_likelihood_of_the_true_mixture_is_the_papers(clusters, published):
    """Table 3 and the table of large sets. The number of points changes the mean over sets in nothing.

    The paper's own is a mean over 1000 sets: both errors count.
    """
    task = dataclasses.replace(SMALL, clusters=clusters, min_size=100, max_size=100)

    def oracle(key):
        sampled = task.sample(key, None)
        return log_likelihood(sampled.truth.mixture, sampled.x, sampled.mask)

    values = np.asarray(many(oracle, 8000, seed=clusters), np.float64)
    error = values.std() * np.sqrt(1 / 8000 + 1 / 1000)
    assert abs(values.mean() - published) < 3 * error and error < 0.015


def test_sizes_are_in_order():
    with pytest.raises(ValueError, match="min_size <= max_size"):
        dataclasses.replace(SMALL, min_size=9, max_size=8)
