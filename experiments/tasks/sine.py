"""Sine curves from a few points (Intention paper, Section 5.1, Appendix 4.1)."""

import dataclasses

import jax
import jax.numpy as jnp

from experiments.tasks.base import Task, check_context, first_observed
from kvq_jax.domains import Count, Natural, Range
from kvq_jax.models.points import Points


@dataclasses.dataclass(frozen=True)
class Sine:
    """y = a sin(x - b) with a, b and x uniform (Eq. 11). The context is a part of the targets.

    Attributes:
      min_context, max_context: the number of observations is uniform between them.
      targets: number of points of a curve.
      amplitude, phase, position: (lowest, highest) a, b and x.
    """

    min_context: Natural
    max_context: Count
    targets: Count
    amplitude: Range
    phase: Range
    position: Range

    def __post_init__(self):
        check_context(self, self.targets)

    def sample(self, key: jax.Array, data: None) -> Task:
        """One curve at x [targets, 1]; the first max_context points may be observed. `data` is not used."""
        position_key, count_key, curve_key = jax.random.split(key, 3)
        x = jax.random.uniform(position_key, (self.targets, 1), minval=self.position[0], maxval=self.position[1])
        y = self._curve(curve_key, x)
        context = Points(x[: self.max_context], y[: self.max_context], first_observed(count_key, self))
        return Task(context, Points(x, y))

    def picture(self, key: jax.Array, data: None) -> Task:
        """The curve and the context of sample(), with targets on an ordered grid."""
        curve_key = jax.random.split(key, 3)[2]
        x = jnp.linspace(*self.position, self.targets)[:, None]
        return self.sample(key, data)._replace(target=Points(x, self._curve(curve_key, x)))

    def _curve(self, key: jax.Array, x: jax.Array) -> jax.Array:
        amplitude_key, phase_key = jax.random.split(key)
        amplitude = jax.random.uniform(amplitude_key, (), minval=self.amplitude[0], maxval=self.amplitude[1])
        phase = jax.random.uniform(phase_key, (), minval=self.phase[0], maxval=self.phase[1])
        return amplitude * jnp.sin(x - phase)
