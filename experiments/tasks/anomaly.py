"""Sets of images of which one is of another class (Intention paper, Section 5.5, Appendix 8)."""

import dataclasses
from typing import Annotated

import flax.struct
import jax
import jax.numpy as jnp

from kvq_jax.domains import Within


class Images(flax.struct.PyTreeNode):
    """The images of one split, resident on the device. C classes, the largest of m images."""

    feature: jax.Array  # [n, d] float32
    label: jax.Array  # [n] int32, 0..C-1
    members: jax.Array  # [C, m] int32: the images of each class, its first one repeated where it has fewer than m
    count: jax.Array  # [C] int32: the images that each class has
    image: jax.Array | None  # [n, H, W] or [n, H, W, 3] uint8, of the test split, for its pictures
    training: bool = flax.struct.field(pytree_node=False)  # whether models are trained on it, and drop out


class AnomalySet(flax.struct.PyTreeNode):
    """A set of N images, all but one of the same class."""

    feature: jax.Array  # [N, d]
    index: jax.Array  # [N]: which images of the split they are
    anomaly: jax.Array  # []: which of the N is of another class
    training: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """An image drawn uniformly, and set_size - 1 different ones of a class drawn uniformly among the others."""

    set_size: Annotated[int, Within(3)]  # of two images neither is the anomaly

    def sample(self, key: jax.Array, data: Images) -> AnomalySet:
        """One set; its anomaly is at a place drawn uniformly."""
        anomaly_key, class_key, normal_key, place_key = jax.random.split(key, 4)
        classes, largest = data.members.shape
        anomaly = jax.random.randint(anomaly_key, (), 0, len(data.label))
        normal_class = (data.label[anomaly] + jax.random.randint(class_key, (), 1, classes)) % classes
        lots = jax.random.uniform(normal_key, (largest,))
        lots = jnp.where(jnp.arange(largest) < data.count[normal_class], lots, -1)
        normal = data.members[normal_class, jax.lax.top_k(lots, self.set_size - 1)[1]]
        place = jax.random.randint(place_key, (), 0, self.set_size)
        index = jnp.roll(jnp.append(anomaly, normal), place)
        return AnomalySet(data.feature[index], index, place, data.training)
