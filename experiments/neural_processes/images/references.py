"""What a likelihood of pixels is to be compared with: one who has seen the training images alone, and one who has not.

Pixelwise    a Gaussian for each pixel of the training images, whatever is observed: nothing is learnt of an image
SmoothImages a Gaussian process on the coordinates of the observed pixels: smoothness, and nothing of what is shown
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks import Task
from experiments.tasks.base import without_replacement
from experiments.tasks.image_completion import CENTRE
from experiments.tasks.pixels import pixel_positions
from kvq_jax.models import Points, join, whole_mask
from kvq_jax.models.neural_processes.predictive import count, factorised, log_prob
from kvq_jax.ops import kernels
from kvq_jax.ops.linalg import cholesky, matmul, one_task_at_a_time

LENGTHS = tuple(np.geomspace(0.05, 5, 21).tolist())  # of an image from -1 to 1
NOISES = tuple(np.geomspace(1e-3, 1, 13).tolist())  # standard deviations, over the scale
_CHUNK = 100  # images that are summed at once


class Pixelwise(NamedTuple):
    """Mean and standard deviation of each pixel of the training images, [height, width, channels]."""

    mean: jax.Array
    std: jax.Array


def pixelwise(images: np.ndarray, floor: float) -> Pixelwise:
    """Of images [n, height, width, channels] uint8, as y. `floor` is the least std: some pixels are always black."""
    total = square = np.zeros(images.shape[1:], np.int64)
    for first in range(0, len(images), _CHUNK):
        values = images[first : first + _CHUNK].astype(np.int32)
        total, square = total + values.sum(0), square + np.square(values).sum(0)
    mean, square = total / len(images) / 255, square / len(images) / 255**2
    std = np.sqrt(np.maximum(square - mean**2, 0))
    return Pixelwise((mean - CENTRE).astype(np.float32), np.maximum(std, floor).astype(np.float32))


def pixelwise_log_likelihood(reference: Pixelwise, target: Points) -> jax.Array:
    """log p(target.y) / M, summed over channels, []."""
    height, width, channels = reference.mean.shape
    row, column = (jnp.rint((target.x.T + 1) / 2 * jnp.array([[height - 1], [width - 1]]))).astype(jnp.int32)
    of_target = (rows[row, column] for rows in reference)
    return log_prob(factorised(*of_target), target.y, target.mask) / count(target.mask, len(target.x))


class SmoothImages(NamedTuple):
    """A Gaussian process: y = level + f(x) + noise, independent channels that share all but the level.

    The kernel of f is scale^2 exp(-|x - x'| / length), Matern of nu = 1/2: images have edges.
    """

    scale: jax.Array  # []
    length: jax.Array  # []
    noise: jax.Array  # [], standard deviation
    level: jax.Array  # [channels]


def fit(images: jax.Array, key: jax.Array, pixels: int) -> SmoothImages:
    """The process of a grid of LENGTHS and NOISES with the greatest marginal likelihood of some pixels of images.

    The scale needs no grid: with K for scale 1 its best square is the mean of r' K^-1 r / n, r = y - level.

    Args:
      images: [n, height, width, channels] uint8.
      key: of the pixels.
      pixels: so many random ones, the same of all images; all, if there are fewer.
    """
    count, height, width, channels = images.shape
    chosen = without_replacement(key, height * width, min(pixels, height * width))
    x = pixel_positions(height, width)[chosen]
    y = images.reshape(count, -1, channels)[:, chosen] / 255.0 - CENTRE
    level = jnp.mean(y, (0, 1))
    residual = jnp.moveaxis(y - level, 1, 0).reshape(len(chosen), -1)

    def of_cell(cell):
        length, noise = cell
        factor = cholesky(_covariance(SmoothImages(1.0, length, noise, level), x))
        white = jax.scipy.linalg.solve_triangular(factor, residual, lower=True)
        square = jnp.mean(white**2)
        return 0.5 * jnp.log(square) + jnp.mean(jnp.log(jnp.diagonal(factor))), jnp.sqrt(square)

    cells = [grid.ravel() for grid in jnp.meshgrid(jnp.asarray(LENGTHS), jnp.asarray(NOISES))]
    losses, scales = jax.lax.map(of_cell, tuple(cells))
    length, noise, scale = (values[jnp.argmin(losses)] for values in (*cells, scales))
    return SmoothImages(scale, length, scale * noise, level)


def smooth_log_likelihood(process: SmoothImages, task: Task) -> dict[str, jax.Array]:
    """log p(targets | context) / M, summed over channels: each target alone ('marginal'), and all ('joint')."""

    @one_task_at_a_time
    def of_kinds(process, task):
        (x, y, _), n = join(task.context, task.target), len(task.context.x)
        there = jnp.concatenate([whole_mask(task.context), whole_mask(task.target)])
        factor = cholesky(jnp.where(there & there[:, None], _covariance(process, x), jnp.eye(len(there))))
        residual = jnp.where(there[:, None], y - process.level, 0)
        white = jax.scipy.linalg.solve_triangular(factor, residual, lower=True)
        own, mean = factor[n:, n:], matmul(factor[n:, :n], white[:n])  # as GaussianProcess.oracle
        kinds = {
            "marginal": (residual[n:] - mean, jnp.sqrt(jnp.sum(own**2, -1))),
            "joint": (white[n:], jnp.ones(len(own))),
        }
        values = {
            kind: log_prob(factorised(0, std[:, None]), error, task.target.mask) for kind, (error, std) in kinds.items()
        }
        values["joint"] -= y.shape[-1] * jnp.sum(jnp.log(jnp.diagonal(own)))
        return {kind: value / count(task.target.mask, len(own)) for kind, value in values.items()}

    return of_kinds(process, task)


def _covariance(process: SmoothImages, x: jax.Array) -> jax.Array:
    """K [n, n] of one channel at x [n, 2]."""
    signal = kernels.matern(x, x, 0.5 / process.length**2, twice_nu=1)
    return process.scale**2 * signal + process.noise**2 * jnp.eye(len(x))
