"""Tasks whose input is a set of some elements, and their numbers: own for each set, or shared by those of a batch."""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from experiments.harness.size_classes import Law, Size, Slots
from kvq_jax.domains import Count


class SetTask(flax.struct.PyTreeNode):
    """One set, and what is asked of it. A batch of sets has leading dimensions."""

    x: jax.Array  # [N, d], of images [N, H, W, C]; absent elements are 0
    mask: jax.Array | None  # [N], True = there; None: all are
    truth: Any  # a tree of arrays, which no network sees; what is known of an element is [N, ...]
    training: bool = flax.struct.field(pytree_node=False, default=False)  # whether networks are trained on it


@dataclasses.dataclass(frozen=True)
class SetSampler:
    """Sets of n elements, n uniform in min_size..max_size.

    A kind of sets has `draw`, a set of max_size elements, and `with_truth`, what is true of those that are left of it.
    An experiment whose batches share n gives `law`, `draw` and `fill` to its harness, another one `sample`.
    """

    min_size: Count
    max_size: Count

    def __post_init__(self):
        if self.min_size > self.max_size:
            raise ValueError(f"min_size <= max_size does not hold for {self.min_size} and {self.max_size}")

    @property
    def law(self) -> Law:
        """The law of n."""
        return Law(self.min_size, 0, (0,) * (self.max_size - self.min_size + 1))

    def sample(self, key: jax.Array, data: Any) -> SetTask:
        """A set with a number of elements of its own, masked. `data`: of a split, or None where keys are enough."""
        size_key, key = jax.random.split(key)
        law = self.law
        return self.fill(self.draw(key, data), law.slots, law.size(law.draw(size_key)))

    def fill(self, drawn: SetTask, slots: Slots, size: Size | None) -> SetTask:
        """The first elements of what was drawn in arrays of slots[0]; size[0] of them are there, or all (None)."""
        x = drawn.x[: slots[0]]
        mask = None if size is None else jnp.arange(slots[0]) < size[0]
        x = x if mask is None else jnp.where(mask.reshape(-1, *[1] * (x.ndim - 1)), x, 0)
        return self.with_truth(drawn.replace(x=x, mask=mask))

    def draw(self, key: jax.Array, data: Any) -> SetTask:
        """A set of max_size elements, with what was drawn of them as its truth. `data`: as `sample`."""
        raise NotImplementedError

    def with_truth(self, task: SetTask) -> SetTask:
        """The task with the truth of the elements that are left."""
        return task
