"""Kinds of point processes: those of Omi et al. 2019 (arXiv 1905.09690), and Hawkes processes with marks."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.event_process import PointProcess, exponential
from kvq_jax.domains import NotNegative, Positive

_ONE = 0  # the only mark


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisson(PointProcess):
    """Events at a constant rate, per unit of time."""

    rate: Positive

    def start(self):
        return ()

    def after(self, state, gap, mark):
        return ()

    def log_intensity(self, state, gap):
        return jnp.full((1,), math.log(self.rate))

    def integral(self, state, gap):
        return self.rate * gap

    def draw(self, key, state):
        return exponential(key) / self.rate, jnp.int32(_ONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Renewal(PointProcess):
    """Independent log-normal gaps of a given mean and standard deviation, the first from the start on."""

    mean: Positive
    std: Positive

    @property
    def log_mean(self) -> float:
        """The mean of the log of a gap."""
        return math.log(self.mean) - self.log_std**2 / 2

    @property
    def log_std(self) -> float:
        """The standard deviation of the log of a gap."""
        return math.sqrt(math.log1p((self.std / self.mean) ** 2))

    def start(self):
        return ()

    def after(self, state, gap, mark):
        return ()

    def log_intensity(self, state, gap):
        z = self._standard(gap)
        log_density = -(z**2) / 2 - math.log(self.log_std * math.sqrt(2 * math.pi)) - jnp.log(_above_zero(gap))
        return (log_density - jax.scipy.special.log_ndtr(-z))[None]

    def integral(self, state, gap):
        return -jax.scipy.special.log_ndtr(-self._standard(gap))

    def draw(self, key, state):
        return jnp.exp(self.log_mean + self.log_std * jax.random.normal(key)), jnp.int32(_ONE)

    def _standard(self, gap):
        """The gap as a draw of N(0, 1)."""
        return (jnp.log(_above_zero(gap)) - self.log_mean) / self.log_std


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfCorrecting(PointProcess):
    """Intensity exp(mu t - alpha n) at time t, after n events: it grows with time, and events lower it."""

    mu: Positive
    alpha: Positive

    def start(self):
        return jnp.zeros(())  # log intensity just after the last event

    def after(self, state, gap, mark):
        return state + self.mu * gap - self.alpha

    def log_intensity(self, state, gap):
        return (state + self.mu * gap)[None]

    def integral(self, state, gap):
        return jnp.exp(state) * jnp.expm1(self.mu * gap) / self.mu

    def draw(self, key, state):
        # exp(state) (exp(mu gap) - 1) / mu = E, an Exp(1), solved for the gap.
        return jax.nn.softplus(jnp.log(self.mu * exponential(key)) - state) / self.mu, jnp.int32(_ONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hawkes(PointProcess):
    """Each event excites later ones, by kernels that decay exponentially; K marks, J kernels.

    Events of mark k have the intensity base_k + sum over earlier events, of mark m and t ago, and over kernels j, of
    branching_jmk decay_j exp(-decay_j t). So branching_jmk is the expected number of events of mark k that an event of
    mark m begets by kernel j.

    Raises ValueError where shapes do not fit, all base rates are 0, or the spectral radius of the branching, of all
    kernels together, is not below 1: events would become ever more frequent.
    """

    base: tuple[NotNegative, ...]  # [K], events per unit of time
    branching: tuple[tuple[tuple[NotNegative, ...], ...], ...]  # [J][K][K]
    decay: tuple[Positive, ...]  # [J], per unit of time

    def __post_init__(self):
        marks, kernels = len(self.base), len(self.decay)
        rows = [row for kernel in self.branching for row in kernel]
        whole = len(self.branching) == kernels and all(len(kernel) == marks for kernel in self.branching)
        if not (marks and kernels and whole and all(len(row) == marks for row in rows)):
            raise ValueError(f"branching is no {kernels} x {marks} x {marks} numbers: as many as decay, base and base")
        if not sum(self.base) > 0:
            raise ValueError("every base rate is 0: there would be no events")
        if self.radius >= 1:
            raise ValueError(f"the spectral radius of branching is {self.radius:.6g}, not below 1")

    @property
    def num_marks(self) -> int:
        return len(self.base)

    @property
    def radius(self) -> float:
        """The spectral radius of the branching matrix."""
        return float(np.abs(np.linalg.eigvals(np.sum(self.branching, 0))).max())

    def start(self):
        return jnp.zeros((len(self.decay), self.num_marks))  # excitation: what each kernel adds to each intensity

    def after(self, state, gap, mark):
        return self._decayed(state, gap) + jnp.asarray(self.branching)[:, mark] * self._decay

    def log_intensity(self, state, gap):
        intensity = jnp.asarray(self.base) + self._decayed(state, gap).sum(0)
        return jnp.where(intensity > 0, jnp.log(_above_zero(intensity)), -jnp.inf)

    def integral(self, state, gap):
        spent = -jnp.expm1(-self._decay * gap) / self._decay
        return sum(self.base) * gap + (state * spent).sum()

    def draw(self, key, state):
        """The first of J + 1 independent points: of the base rate, and of each kernel (Dassios & Zhao 2013).

        Kernel j, s_j in all, has no point within t with probability exp(-s_j (1 - exp(-decay_j t)) / decay_j), which is
        solved for t; with probability exp(-s_j / decay_j) it never has one.
        """
        time_key, mark_key = jax.random.split(key)
        drawn = exponential(time_key, (1 + len(self.decay),))
        decay, total = self._decay[:, 0], state.sum(-1)
        comes = drawn[1:] * decay < total
        part = jnp.where(comes, drawn[1:] * decay / jnp.where(comes, total, 1), 0)
        of_kernel = jnp.where(comes, -jnp.log1p(-part) / decay, jnp.inf)
        gaps = jnp.concatenate([drawn[:1] / sum(self.base), of_kernel])
        first = jnp.argmin(gaps)
        weights = jnp.concatenate([jnp.asarray(self.base)[None], state])[first]  # all marks of a kernel decay alike
        return gaps[first], jax.random.categorical(mark_key, jnp.log(weights)).astype(jnp.int32)

    @property
    def _decay(self) -> jax.Array:
        return jnp.asarray(self.decay)[:, None]

    def _decayed(self, state, gap):
        return state * jnp.exp(-self._decay * gap)


# Name -> process, as in the config's `task.name`.
PROCESSES = {"poisson": Poisson, "renewal": Renewal, "self_correcting": SelfCorrecting, "hawkes": Hawkes}


def _above_zero(value: jax.Array) -> jax.Array:
    """At least the least number of the type: the log of what is masked later must not be infinite."""
    return jnp.maximum(value, jnp.finfo(value.dtype).tiny)
