"""Least squares as a task to learn (Intention paper, Section 2, Appendix 2): from pairs (x, y = x w) to w."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvq_jax.domains import Count
from kvq_jax.ops import intention_weights


class LinearTask(NamedTuple):
    """Points of one linear function, and its weights."""

    x: jax.Array  # [N, d]
    y: jax.Array  # [N, 1]
    weights: jax.Array  # [d]


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """y = x w without noise, w ~ N(0, I_d) and x ~ N(0, I_d) (Appendix 2, Eq. 6)."""

    points: Count
    dimension: Count

    def sample(self, key: jax.Array, data: None) -> LinearTask:
        """One function and its points. `data` is not used."""
        normal = jax.random.normal(key, (1 + self.points, self.dimension))  # one draw: they are slow to compile
        weights, x = normal[0], normal[1:]
        return LinearTask(x, jnp.matmul(x, weights[:, None], precision="highest"), weights)


def oracle(task: LinearTask) -> jax.Array:
    """The weights pinv(x) y, [d]: exact up to rounding where there are as many points as dimensions or more.

    With just as many the system is square, and at times so ill conditioned that rounding in float32 shows in the mean
    error, though not in the median.
    """
    return intention_weights(task.x, task.y, alpha=0)[..., 0]
