"""Sets of images of characters, of which the different ones are counted (Set Transformer, Section 5.2, Table 2)."""

import dataclasses

import jax
import jax.numpy as jnp

from experiments.harness.size_classes import Size, Slots
from experiments.tasks.episodes import Images
from experiments.tasks.sets import SetSampler, SetTask


@dataclasses.dataclass(frozen=True)
class Counting(SetSampler):
    """n images of c different characters; c, the truth, is uniform in 1..n, and no image is in a set twice.

    Every character has one image. Each of the n - c others is of a character drawn uniformly among the c. The paper
    asks for at least one image of each, and does not say how the others are drawn.
    """

    def draw(self, key: jax.Array, data: Images) -> SetTask:
        """A set for each n: x uint8 [sizes, max_size, H, W, C] and truth int32 [sizes], of shared random numbers.

        c depends on n, which a batch shares and `fill` tells. Characters have at least max_size images.
        """
        class_key, place_key, count_key, kind_key = jax.random.split(key, 4)
        chosen = data.member[jax.random.permutation(class_key, len(data.member))[: self.max_size]]
        rank = jnp.where(chosen >= 0, jax.random.uniform(place_key, chosen.shape), -1.0)  # what is not there comes last
        number = jnp.take_along_axis(chosen, jax.lax.top_k(rank, self.max_size)[1], axis=1)
        slot, lot = jnp.arange(self.max_size), jax.random.uniform(kind_key, (self.max_size,))
        n = jnp.arange(self.min_size, self.max_size + 1)
        count = 1 + jnp.int32(jax.random.uniform(count_key) * n)
        kind = jnp.where(slot < count[:, None], slot, jnp.int32(lot * count[:, None]))
        return SetTask(data.image[number[kind, slot]], None, count, data.training)

    def fill(self, drawn: SetTask, slots: Slots, size: Size | None) -> SetTask:
        """The set of size[0] images (None: of slots[0]) of those that were drawn, in arrays of slots[0]."""
        own = (slots[0] if size is None else size[0]) - self.min_size
        of_size = drawn.replace(x=drawn.x[own], truth=drawn.truth[own])
        return super().fill(of_size, slots, size)
