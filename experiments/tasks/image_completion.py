"""Completing images of any size and number of channels: the task of the TNP, LBANP and CMANP papers.

CMANP (Feng et al. 2023, arXiv 2305.14567), Section 4.1. A pixel is a point: x its (row, column) from -1 to 1, y its
channels, value / 255 - 0.5. Context and targets are pixels of one image, uniform without replacement.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from experiments.harness.size_classes import Law, Size, Slots
from experiments.tasks.base import Task, student_noise, without_replacement
from experiments.tasks.pixels import pixel_positions
from kvq_jax.domains import Count, Natural, NotNegativeRange, Positive
from kvq_jax.models.points import Points

CENTRE = 0.5  # of value / 255, subtracted


@dataclasses.dataclass(frozen=True)
class ImageCompletion:
    """N ~ U{min_context..P - 1 - min_targets} observed pixels and M ~ U{min_targets..P - N - 1} targets.

    In the published code all images of a batch have the same N and M, but each its own pixels:
    experiments.harness.size_classes gives such sizes to `sample`. Without them each image has a size of its own.

    Attributes:
      min_context, min_targets: 3 and 3 are published.
      max_points: P; published: 200 at 32x32, 800 at 64x64, 1600 at 128x128.
      target_cap: M is below it too, as in the released code of CMANP (400, in training alone); 0: no cap.
      t_scale: (lowest, highest) scale of noise by Student's t on value / 255, uniform for each channel of each pixel;
        (0, 0) is none. The published t_noise=t is (t, t), and its -1 is (0, 0.09).
      t_freedom: degrees of freedom of it; 2.1 is published.
    """

    min_context: Natural
    min_targets: Count
    max_points: Count
    target_cap: Natural
    t_scale: NotNegativeRange
    t_freedom: Positive

    def __post_init__(self):
        if self.max_points <= self.min_context + self.min_targets:
            raise ValueError(
                f"min_context + min_targets < max_points does not hold for {self.min_context}, {self.min_targets} and "
                f"{self.max_points}"
            )
        if self.target_cap and self.target_cap <= self.min_targets:
            raise ValueError(f"target_cap={self.target_cap} leaves no number of targets from {self.min_targets} on")

    @property
    def most_targets(self) -> int:
        """The slots of a task's targets."""
        return max(self.law.most_targets)

    @functools.cached_property
    def law(self) -> Law:
        """The law of N and M."""
        context = range(self.min_context, self.max_points - self.min_targets)
        cap = (self.target_cap or self.max_points) - 1
        return Law(self.min_context, self.min_targets, tuple(min(self.max_points - n - 1, cap) for n in context))

    def sample(self, key: jax.Array, data: jax.Array, slots: Slots | None = None, size: Size | None = None) -> Task:
        """An image of `data`; `draw` and `fill` in one.

        Args:
          key: of the image and its pixels.
          data: images [n, height, width, channels] uint8, held on the device.
          slots: of context and targets; None: enough for every size, of which one is drawn from the key.
          size: N and M; None with slots: all slots are points, and there are no masks.
        """
        size_key, key = jax.random.split(key)
        if slots is None:
            slots, size = self.law.slots, self.law.size(self.law.draw(size_key))
        return self.fill(self.draw(key, data), slots, size)

    def draw(self, key: jax.Array, data: jax.Array, image: jax.Array | None = None) -> Points:
        """The pixels of an image that may be seen or asked for, P - 1 in random order.

        The image is number `image` of `data`, by default a random one. Raises ValueError for an image of fewer pixels.
        """
        image_key, pixel_key, noise_key = jax.random.split(key, 3)
        images, height, width, channels = data.shape
        count, pixels = self.max_points - 1, height * width
        if count > pixels:
            raise ValueError(f"max_points={self.max_points}, but the images have {pixels} pixels")
        image = jax.random.randint(image_key, (), 0, images) if image is None else image
        chosen = without_replacement(pixel_key, pixels, count)
        y = data.reshape(images, pixels, channels)[image, chosen] / 255.0
        if self.t_scale[1]:
            y = y + student_noise(noise_key, self.t_scale, self.t_freedom, y.shape)
        return Points(pixel_positions(height, width)[chosen], y - CENTRE)

    def fill(self, draws: Points, slots: Slots, size: Size | None) -> Task:
        """The first N pixels as context and the last M, from the last on, as targets: arrays of `slots`.

        Empty slots are 0. A size of None: all slots are points, and there are no masks.
        """
        ends = (lambda rows: rows[: slots[0]]), (lambda rows: rows[::-1][: slots[1]])
        return Task(*(_present(jax.tree.map(end, draws), count) for end, count in zip(ends, size or (None, None))))

    def fill_points(self, draws: Points, slots: Slots, size: Size | None) -> Task:
        """The first N + M pixels in arrays of `slots` for the context and all points, of sizes N and N + M.

        The target holds all points, of which the first N are the context. A size of None: all slots are points.
        """
        first = (Points(*(rows[:held] for rows in draws[:2])) for held in slots)
        return Task(*(_present(points, count) for points, count in zip(first, size or (None, None))))


def _present(points: Points, count: jax.Array | None) -> Points:
    """Points of which the first `count` are there; None: all, without a mask."""
    if count is None:
        return points
    mask = jnp.arange(len(points.x)) < count
    return Points(*(jnp.where(mask[:, None], rows, 0) for rows in points[:2]), mask)
