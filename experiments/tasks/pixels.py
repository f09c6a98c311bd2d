"""Completing an image from some of its pixels (Intention paper, Section 5.1, Appendix 4.2)."""

import dataclasses

import jax
import jax.numpy as jnp

from experiments.tasks.base import Task, check_context, first_observed
from kvq_jax.domains import Count, Natural
from kvq_jax.models.points import Points


@dataclasses.dataclass(frozen=True)
class Pixels:
    """From a pixel's position in [-1, 1]^2 to its intensity in [0, 1]: some pixels are observed, all are targets."""

    min_context: Natural
    max_context: Count

    def sample(self, key: jax.Array, data: jax.Array) -> Task:
        """One image of `data` [images, height, width] uint8, held on the device.

        Raises ValueError where max_context is more than an image has pixels.
        """
        image_key, pixel_key, count_key = jax.random.split(key, 3)
        images, height, width = data.shape
        check_context(self, height * width)
        image = data[jax.random.randint(image_key, (), 0, images)].reshape(-1, 1) / 255.0
        position = pixel_positions(height, width)
        observed = jax.random.permutation(pixel_key, height * width)[: self.max_context]
        context = Points(position[observed], image[observed], first_observed(count_key, self))
        return Task(context, Points(position, image))


def pixel_positions(height: int, width: int) -> jax.Array:
    """(row, column) of every pixel of an image in row order, each from -1 to 1: [height * width, 2]."""
    rows, columns = jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width)
    return jnp.stack(jnp.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
