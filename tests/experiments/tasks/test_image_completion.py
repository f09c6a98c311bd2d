"""Image completion: the law of its sizes, its pixels by hand, and no pixel twice."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from experiments.harness.size_classes import choose_classes
from experiments.tasks.base import without_replacement
from experiments.tasks.image_completion import ImageCompletion

TASK = ImageCompletion(3, 3, 200, 0, (0.0, 0.0), 2.1)
SMALL = dataclasses.replace(TASK, max_points=13)
# Two images of 3 x 4 pixels: value = 100 * image + 10 * row + column, and in the second channel 255 less that.
VALUES = 100 * np.arange(2)[:, None, None] + 10 * np.arange(3)[:, None] + np.arange(4)
IMAGES = np.stack([VALUES, 255 - VALUES], -1).astype(np.uint8)


def many(function, count=4000, seed=0):
    return np.asarray(jax.jit(jax.vmap(function))(jax.random.split(jax.random.key(seed), count)))


def test_the_law_of_sizes_is_the_published_one():
    """N of randint(3, P - 3), then M of randint(3, P - N): every pair, its probability, and what is drawn."""
    law = {(n, m): 1 / (7 * (13 - n - 3)) for n in range(3, 10) for m in range(3, 13 - n)}
    sizes = zip(SMALL.law.sizes.tolist(), SMALL.law.probability)
    assert {tuple(size): pytest.approx(p) for size, p in sizes} == law
    assert SMALL.law.slots == (9, 9) and TASK.law.slots == (196, 196)
    drawn = many(lambda key: jnp.stack(SMALL.law.size(SMALL.law.draw(key))))
    counts = [np.sum(np.all(drawn == size, 1)) for size in law]
    assert sum(counts) == 4000
    assert scipy.stats.chisquare(counts, 4000 * np.array([*law.values()])).pvalue > 0.01


def test_sizes_of_a_long_law_are_drawn_without_its_table():
    """1.27 million sizes of 1600 points: drawn with their law, chosen for in a second, in a program of kilobytes."""
    law = dataclasses.replace(TASK, max_points=1600).law
    assert len(law.sizes) == sum(1600 - n - 3 for n in range(3, 1597)) and law.slots == (1596, 1596)
    drawn = many(lambda key: jnp.stack(law.size(law.draw(key))))
    share = np.stack([(drawn[:, 0] - 3) / 1594, (drawn[:, 1] - 3) / (1600 - drawn[:, 0] - 3)])
    assert share.min() >= 0 and share.max() < 1
    rest = drawn[:, 0] < 1500  # where the share of M takes many values
    assert scipy.stats.kstest(share[0], "uniform").pvalue > 0.01
    assert scipy.stats.kstest(share[1][rest], "uniform").pvalue > 0.01
    classes = choose_classes(law, 16)
    assert classes.waste < 1.27 and sum(classes.probabilities) == pytest.approx(1)
    text = jax.jit(lambda key: classes.switch(key, lambda slots, size: size)).lower(jax.random.key(0)).as_text()
    assert len(text) < 100_000


def test_the_waste_of_sixteen_classes_is_a_quarter():
    assert choose_classes(TASK.law, 16).waste < 1.25 < choose_classes(TASK.law, 12).waste


def test_the_cap_of_the_released_code():
    """--max_num_train_target_points 400: M of randint(3, min(P - N, 400))."""
    law = dataclasses.replace(TASK, max_points=800, target_cap=400).law
    context, target = law.sizes.T
    most = {n: target[context == n].max() for n in (3, 399, 400, 401, 796)}
    assert most == {3: 399, 399: 399, 400: 399, 401: 398, 796: 3}
    assert np.sum(law.probability) == pytest.approx(1) and law.slots == (796, 399)


def test_pixels_are_drawn_without_replacement_each_as_often_in_each_place():
    drawn = many(lambda key: without_replacement(key, 5, 3))
    orders = list(itertools.permutations(range(5), 3))
    counts = [np.sum(np.all(drawn == order, 1)) for order in orders]
    assert sum(counts) == len(drawn), "no pixel twice"
    assert scipy.stats.chisquare(counts).pvalue > 0.01
    longer = many(lambda key: without_replacement(key, 1024, 199), 50)
    assert all(len(set(row)) == 199 for row in longer) and longer.min() >= 0 and longer.max() < 1024


def test_points_are_the_pixels_of_one_image():
    """Coordinates (row, column) in [-1, 1]; y = value / 255 - 1/2; context and targets apart; empty slots are 0."""
    sample = jax.jit(SMALL.sample)
    for seed in range(8):
        context, target, _ = jax.device_get(sample(jax.random.key(seed), jnp.asarray(IMAGES)))
        seen = []
        for points in (context, target):
            there = points.mask
            assert not points.x[~there].any() and not points.y[~there].any()
            seen.append((points.x[there] + 1) / 2 * [2, 3])  # row and column
            values = (points.y[there] + 0.5) * 255
            np.testing.assert_allclose(values.sum(1), 255, atol=1e-3)
            own = values[:, 0] - 10 * seen[-1][:, 0] - seen[-1][:, 1]
            np.testing.assert_allclose(own, own[0], atol=1e-3)
            assert own[0] == pytest.approx(0, abs=1e-3) or own[0] == pytest.approx(100, abs=1e-3)
        pixels = np.rint(np.concatenate(seen))
        np.testing.assert_allclose(np.concatenate(seen), pixels, atol=1e-5)
        assert len(np.unique(pixels, axis=0)) == len(pixels) == context.mask.sum() + target.mask.sum() <= 12


def test_images_of_a_batch_have_pixels_of_their_own_and_every_image_comes():
    draws = jax.vmap(SMALL.draw, (0, None))(jax.random.split(jax.random.key(0), 20), jnp.asarray(IMAGES))
    assert len(np.unique(np.asarray(draws.x), axis=0)) == 20
    of_second = np.rint((np.asarray(draws.y[..., 0]) + 0.5) * 255).max(1) > 99
    assert 0 < of_second.sum() < 20
    chosen = SMALL.draw(jax.random.key(0), jnp.asarray(IMAGES), image=1)
    assert np.rint((np.asarray(chosen.y)[:, 0] + 0.5) * 255).min() >= 100


def test_a_task_is_the_same_in_every_class():
    draws = SMALL.draw(jax.random.key(1), jnp.asarray(IMAGES))
    small, large = (SMALL.fill(draws, slots, (jnp.int32(3), jnp.int32(4))) for slots in ((3, 4), (9, 9)))
    for one, other in zip(small[:2], large[:2]):
        for narrow, wide in zip(one, other):
            np.testing.assert_array_equal(narrow, wide[: len(narrow)])
            assert not np.asarray(wide[len(narrow) :]).any()
    whole = SMALL.fill(draws, (3, 4), None)
    assert whole.context.mask is None and np.array_equal(whole.target.y, small.target.y)


def test_all_points_in_one_array_are_the_pixels_in_their_order():
    draws = SMALL.draw(jax.random.key(1), jnp.asarray(IMAGES))
    whole = SMALL.fill_points(draws, (3, 7), None)
    assert whole.context.mask is None and np.array_equal(whole.target.y, draws.y[:7])
    sampled = SMALL.fill_points(draws, (5, 11), (jnp.int32(3), jnp.int32(7)))
    for points, there, held in zip(sampled[:2], (3, 7), (5, 11)):
        np.testing.assert_array_equal(points.mask, np.arange(held) < there)
        np.testing.assert_array_equal(points.x[:there], draws.x[:there])
        assert not np.asarray(points.y[there:]).any()


def test_noise_of_students_t():
    noisy = dataclasses.replace(SMALL, t_scale=(0.0, 0.09))
    images = jnp.asarray(np.full((1, 3, 4, 1), 51, np.uint8))
    noise = many(lambda key: noisy.draw(key, images).y, 1000) - (0.2 - 0.5)
    expected = 0.09 * np.random.default_rng(0).random(20_000) * scipy.stats.t(2.1).rvs(20_000, random_state=1)
    assert scipy.stats.ks_2samp(noise.ravel(), expected).pvalue > 0.01
    assert np.allclose(SMALL.draw(jax.random.key(0), images).y, -0.3)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(max_points=6), "min_context \\+ min_targets < max_points"),
        (dict(target_cap=3), "target_cap=3 leaves no number of targets from 3 on"),
    ],
)
def test_impossible_numbers_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_images_with_too_few_pixels_are_refused():
    with pytest.raises(ValueError, match="max_points=200, but the images have 12 pixels"):
        TASK.draw(jax.random.key(0), jnp.asarray(IMAGES))
