"""The samplers against what the paper says of the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tasks.pixels import Pixels, pixel_positions
from experiments.tasks.sine import Sine

SINE = Sine(min_context=2, max_context=10, targets=50, amplitude=(0.1, 5.0), phase=(0.0, np.pi), position=(-6.0, 6.0))
IMAGES = jnp.asarray(np.random.default_rng(0).integers(0, 256, (5, 4, 6)), jnp.uint8)


def batch(task, data, n=4000):
    return jax.jit(jax.vmap(task.sample, (0, None)))(jax.random.split(jax.random.key(1), n), data)


def test_sine_curves_are_sines_of_the_paper():
    tasks = batch(SINE, None)
    # y = a sin(x - b) = p sin x + q cos x with p = a cos b, q = -a sin b: two numbers explain all 50 points.
    basis = np.concatenate([np.sin(tasks.target.x), np.cos(tasks.target.x)], -1)
    p, q = np.stack(
        [np.linalg.lstsq(x, y, rcond=None)[0][:, 0] for x, y in zip(basis[:500], np.asarray(tasks.target.y[:500]))], 1
    )
    residual = tasks.target.y[:500, :, 0] - np.einsum("tnd,dt->tn", basis[:500], np.stack([p, q]))
    assert np.abs(residual).max() < 1e-4
    amplitude, phase = np.hypot(p, q), np.arctan2(-q, p)
    assert abs(np.corrcoef(amplitude, phase)[0, 1]) < 0.2
    assert amplitude.min() >= 0.1 and amplitude.max() <= 5 and abs(amplitude.mean() - 2.55) < 0.2
    assert phase.min() >= -1e-3 and phase.max() <= np.pi + 1e-3 and abs(phase.mean() - np.pi / 2) < 0.15
    assert tasks.target.x.min() >= -6 and tasks.target.x.max() < 6
    # E[y^2] = E[a^2] / 2 up to the finite range of x: the error of predicting zero.
    assert abs(float(jnp.mean(tasks.target.y**2)) - 4.25) < 0.25


def test_context_is_a_part_of_the_targets_and_varies_by_mask_alone():
    tasks = batch(SINE, None)
    assert tasks.context.x.shape == (4000, 10, 1)
    np.testing.assert_array_equal(tasks.context.x, tasks.target.x[:, :10])
    np.testing.assert_array_equal(tasks.context.y, tasks.target.y[:, :10])
    observed = np.asarray(tasks.context.mask).sum(-1)
    assert set(observed) == set(range(2, 11)) and np.bincount(observed)[2:].min() > 4000 / 9 * 0.8
    assert (np.sort(tasks.context.mask, -1)[:, ::-1] == tasks.context.mask).all()


def test_a_picture_is_the_same_curve_on_a_grid():
    key = jax.random.key(3)
    sampled, drawn = SINE.sample(key, None), SINE.picture(key, None)
    np.testing.assert_array_equal(sampled.context.y, drawn.context.y)
    assert (np.diff(drawn.target.x[:, 0]) > 0).all()
    at_context = np.interp(drawn.context.x[:, 0], drawn.target.x[:, 0], drawn.target.y[:, 0])
    np.testing.assert_allclose(at_context, drawn.context.y[:, 0], atol=0.06)


def test_pixels_are_positions_and_intensities_of_one_image():
    tasks = batch(Pixels(min_context=3, max_context=8), IMAGES, 200)
    grid = pixel_positions(4, 6)
    assert tasks.target.x.shape == (200, 24, 2) and tasks.context.x.shape == (200, 8, 2)
    images = np.asarray(IMAGES).reshape(5, -1) / 255
    for index in range(200):
        target = np.asarray(tasks.target.y[index, :, 0])
        assert any(np.allclose(target, image) for image in images)
        cells = [int(np.argmin(np.abs(grid - x).sum(-1))) for x in tasks.context.x[index]]
        assert len(set(cells)) == 8, "a pixel is observed once"
        np.testing.assert_allclose(tasks.context.y[index, :, 0], target[cells])
    assert set(np.asarray(tasks.context.mask).sum(-1)) == {3, 4, 5, 6, 7, 8}


def test_pixel_positions_run_by_rows_from_corner_to_corner():
    grid = np.asarray(pixel_positions(2, 3))
    np.testing.assert_array_equal(grid, [[-1, -1], [-1, 0], [-1, 1], [1, -1], [1, 0], [1, 1]])


@pytest.mark.parametrize(
    "make", [lambda: Sine(5, 60, 50, (0, 1), (0, 1), (0, 1)), lambda: Sine(7, 5, 50, (0, 1), (0, 1), (0, 1))]
)
def test_impossible_contexts_are_refused(make):
    with pytest.raises(ValueError, match="min_context <= max_context <= 50"):
        make()


def test_more_context_than_pixels_is_refused():
    with pytest.raises(ValueError, match="24 points"):
        Pixels(1, 25).sample(jax.random.key(0), IMAGES)
