"""Few-shot regression tasks: sine curves and the pixels of an image (Intention paper, Section 5.1, Appendix 4)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp


class RegressionTask(NamedTuple):
    """Observations of one function and the points to predict it at. The number observed varies by mask, never by shape."""

    context_x: jax.Array  # [N, dx]
    context_y: jax.Array  # [N, dy]
    context_mask: jax.Array  # [N] bool, True = observed
    target_x: jax.Array  # [M, dx]
    target_y: jax.Array  # [M, dy]


@dataclasses.dataclass(frozen=True)
class Sine:
    """y = a sin(x - b) with a, b and x uniform (Appendix 4.1, Eq. 11). The context is a part of the targets."""

    min_context: int
    max_context: int
    targets: int
    amplitude: tuple
    phase: tuple
    position: tuple

    def __post_init__(self):
        _check_context(self, self.targets)

    def sample(self, key: jax.Array, data: None) -> RegressionTask:
        """One curve: x, y [targets, 1], of which the first max_context may be observed. `data` is not used."""
        position_key, count_key, curve_key = jax.random.split(key, 3)
        x = jax.random.uniform(position_key, (self.targets, 1), minval=self.position[0], maxval=self.position[1])
        y = self._curve(curve_key, x)
        return RegressionTask(x[: self.max_context], y[: self.max_context], _context_mask(count_key, self), x, y)

    def picture(self, key: jax.Array, data: None) -> RegressionTask:
        """As sample, with the targets on an ordered grid, so that they can be drawn as a curve."""
        curve_key = jax.random.split(key, 3)[2]
        x = jnp.linspace(*self.position, self.targets)[:, None]
        return self.sample(key, data)._replace(target_x=x, target_y=self._curve(curve_key, x))

    def _curve(self, key: jax.Array, x: jax.Array) -> jax.Array:
        amplitude_key, phase_key = jax.random.split(key)
        amplitude = jax.random.uniform(amplitude_key, (), minval=self.amplitude[0], maxval=self.amplitude[1])
        phase = jax.random.uniform(phase_key, (), minval=self.phase[0], maxval=self.phase[1])
        return amplitude * jnp.sin(x - phase)


@dataclasses.dataclass(frozen=True)
class Pixels:
    """From a pixel's position in [-1, 1]^2 to its intensity in [0, 1] (Appendix 4.2): some pixels observed, all predicted."""

    min_context: int
    max_context: int

    def sample(self, key: jax.Array, data: jax.Array) -> RegressionTask:
        """One image of `data` [images, height, width] uint8, held on the device."""
        image_key, pixel_key, count_key = jax.random.split(key, 3)
        images, height, width = data.shape
        _check_context(self, height * width)
        image = data[jax.random.randint(image_key, (), 0, images)].reshape(-1, 1) / 255.0
        position = pixel_positions(height, width)
        observed = jax.random.permutation(pixel_key, height * width)[: self.max_context]
        return RegressionTask(position[observed], image[observed], _context_mask(count_key, self), position, image)

    picture = sample


def pixel_positions(height: int, width: int) -> jax.Array:
    """(row, column) of every pixel of an image in row order, each from -1 to 1: [height * width, 2]."""
    rows, columns = jnp.linspace(-1, 1, height), jnp.linspace(-1, 1, width)
    return jnp.stack(jnp.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)


def _context_mask(key: jax.Array, task: Sine | Pixels) -> jax.Array:
    """[max_context]: the first n are observed, n uniform in min_context..max_context."""
    n = jax.random.randint(key, (), task.min_context, task.max_context + 1)
    return jnp.arange(task.max_context) < n


def _check_context(task: Sine | Pixels, points: int) -> None:
    if not 0 <= task.min_context <= task.max_context <= points:
        raise ValueError(
            f"0 <= min_context <= max_context <= {points} points does not hold for min_context={task.min_context}, "
            f"max_context={task.max_context}"
        )
