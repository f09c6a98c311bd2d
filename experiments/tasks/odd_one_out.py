"""Sets of images with attributes in common, but for one that has none of them (Set Transformer, Section 5.4)."""

import dataclasses
import itertools
from typing import Annotated

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.sets import SetTask
from kvq_jax.domains import Count, Natural, Within


class AttributedImages(flax.struct.PyTreeNode):
    """The images of one split, on the device."""

    image: jax.Array  # uint8 [n, H, W, C]
    attribute: jax.Array  # bool [n, A]
    common: jax.Array  # int32 [P, shared]: what the images of a set may have in common
    training: bool = flax.struct.field(pytree_node=False)


@dataclasses.dataclass(frozen=True)
class OddOneOut:
    """set_size - 1 different images that have `shared` attributes, drawn uniformly, and one that has none of these."""

    set_size: Annotated[int, Within(3)]
    shared: Count
    sets: Natural  # how many different sets there are to train on, the same for every model; 0: each is drawn anew

    def common(self, attribute: np.ndarray) -> np.ndarray:
        """Which attributes of images [n, A] may be common in a set: as many as `shared`, int32 [P, shared].

        Enough images have all of them, and at least one has none. There may be none such: P = 0.
        """
        groups = np.array(list(itertools.combinations(range(attribute.shape[1]), self.shared)), np.int32)
        groups = groups.reshape(-1, self.shared)
        own = [attribute[:, group] for group in groups]
        enough = [has.all(1).sum() >= self.set_size - 1 and not has.any(1).all() for has in own]
        return groups[np.array(enough, bool)]

    def sample(self, key: jax.Array, data: AttributedImages) -> SetTask:
        """One set. The truth is the place of its anomaly, int32 [], drawn uniformly."""
        if data.training and self.sets:
            number = jax.random.randint(key, (), 0, self.sets)
            key = jax.random.fold_in(jax.random.key(0, impl=jax.random.key_impl(key)), number)
        group_key, normal_key, odd_key, place_key = jax.random.split(key, 4)
        group = data.common[jax.random.randint(group_key, (), 0, len(data.common))]
        has, images = data.attribute[:, group], (len(data.image),)
        lots = jnp.where(has.all(1), jax.random.uniform(normal_key, images), -1)
        normal = jax.lax.top_k(lots, self.set_size - 1)[1]
        odd = jnp.where(has.any(1), -1, jax.random.uniform(odd_key, images)).argmax()
        place = jax.random.randint(place_key, (), 0, self.set_size)
        number = jnp.roll(jnp.append(odd, normal), place)
        return SetTask(data.image[number], None, place, data.training)
