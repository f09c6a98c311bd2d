"""Episodes of few-shot classification: a few images of each of some classes to learn from, others to classify."""

import dataclasses
from typing import Annotated

import flax.struct
import jax
import jax.numpy as jnp

from kvq_jax.domains import Count, Within


class Images(flax.struct.PyTreeNode):
    """The images of one split, on the device.

    image   uint8 [n, H, W, C]
    member  int32 [classes, largest]: numbers of the images of each class, then -1 where it has fewer
    """

    image: jax.Array
    member: jax.Array
    training: bool = flax.struct.field(pytree_node=False)


class Episode(flax.struct.PyTreeNode):
    """N = way x shot labelled images and M = way x query images to classify, in the order of their one-hot labels."""

    context_image: jax.Array  # [N, H, W, C] uint8
    context_label: jax.Array  # [N, way]
    target_image: jax.Array  # [M, H, W, C] uint8
    target_label: jax.Array  # [M, way]
    training: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class Episodes:
    """`way` classes, drawn without replacement, labelled in that order; `shot` + `query` different images of each."""

    way: Annotated[int, Within(2)]
    shot: Count
    query: Count

    def draw(self, key: jax.Array, member: jax.Array) -> jax.Array:
        """Numbers of the images of one episode [way, shot + query], a row for each label. Every class has so many."""
        class_key, image_key = jax.random.split(key)
        chosen = member[jax.random.permutation(class_key, len(member))[: self.way]]
        rank = jnp.where(chosen >= 0, jax.random.uniform(image_key, chosen.shape), -1.0)  # what is not there comes last
        place = jax.lax.top_k(rank, self.shot + self.query)[1]
        return jnp.take_along_axis(chosen, place, axis=1)

    def sample(self, key: jax.Array, data: Images) -> Episode:
        """One episode of the images of a split."""
        number = self.draw(key, data.member)
        parts = number[:, : self.shot], number[:, self.shot :]
        context, target = (data.image[part].reshape(-1, *data.image.shape[1:]) for part in parts)
        context_label, target_label = (jnp.repeat(jnp.eye(self.way), n, axis=0) for n in (self.shot, self.query))
        return Episode(context, context_label, target, target_label, data.training)
