"""Images of one split and their classes, one at a time: to train an image encoder by classification."""

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from kvq_jax.domains import Natural


class LabelledImages(flax.struct.PyTreeNode):
    """One image, or all of a split on the device.

    image  uint8 [..., H, W, C]
    label  int32 [...]
    """

    image: jax.Array
    label: jax.Array
    training: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class Classified:
    """An image drawn uniformly. Those to train on are moved and mirrored, as CIFAR's are since He et al. 2016."""

    padding: Natural  # most pixels that an image to train on is moved by, up or down and to either side, over black
    mirror: bool  # whether every second image to train on, at random, is mirrored

    def sample(self, key: jax.Array, data: LabelledImages) -> LabelledImages:
        """One image of a split."""
        draw_key, move_key, mirror_key = jax.random.split(key, 3)
        number = jax.random.randint(draw_key, (), 0, len(data.label))
        image = data.image[number]
        if data.training and self.padding:
            around = [(self.padding,) * 2] * 2 + [(0, 0)]
            corner = jax.random.randint(move_key, (2,), 0, 2 * self.padding + 1)
            image = jax.lax.dynamic_slice(jnp.pad(image, around), (*corner, 0), image.shape)
        if data.training and self.mirror:
            image = jnp.where(jax.random.bernoulli(mirror_key), image[:, ::-1], image)
        return LabelledImages(image, data.label[number], data.training)
