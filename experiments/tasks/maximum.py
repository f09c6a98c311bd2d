"""The largest of some numbers (Set Transformer, Section 5.1, Table 1)."""

import dataclasses

import jax
import jax.numpy as jnp

from experiments.tasks.sets import SetSampler, SetTask


@dataclasses.dataclass(frozen=True)
class Maximum(SetSampler):
    """x_i ~ U(low, high), or of the integers low..high; the truth is max x_i, []."""

    low: float
    high: float
    integers: bool

    def __post_init__(self):
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")

    def draw(self, key: jax.Array, data: None) -> SetTask:
        """max_size numbers [max_size, 1]. `data` is not used."""
        shape = (self.max_size, 1)
        if self.integers:
            x = jax.random.randint(key, shape, int(self.low), int(self.high) + 1).astype(jnp.float32)
        else:
            x = jax.random.uniform(key, shape, minval=self.low, maxval=self.high)
        return SetTask(x, None, None)

    def with_truth(self, task: SetTask) -> SetTask:
        """The task with the maximum of the elements that are there."""
        there = task.x if task.mask is None else jnp.where(task.mask[:, None], task.x, -jnp.inf)
        return task.replace(truth=there.max())
