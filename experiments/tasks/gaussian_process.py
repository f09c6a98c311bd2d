"""Functions of one-dimensional Gaussian processes as tasks, and the exact posterior that no model can beat.

The task of the TNP, LBANP and CMANP papers (CMANP, Section 4.2) and of the ANP slides. Each function has kernel
parameters of its own, x ~ U(position), and y ~ N(0, K) with K = scale^2 k(x, x') + noise^2 I. The noise is part of
context and targets.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from numpyro.util import not_jax_tracer

from experiments.harness.size_classes import Law, Size, Slots
from experiments.tasks.base import Task, student_noise
from kvq_jax.domains import Count, Natural, NotNegativeRange, Positive, PositiveRange, Range
from kvq_jax.models.points import Points, whole_mask
from kvq_jax.names import choose
from kvq_jax.nn.predictions import JointNormal
from kvq_jax.ops import kernels
from kvq_jax.ops.linalg import cholesky, matmul


class Hyperparameters(NamedTuple):
    """The kernel of one function; the period is that of the periodic kernel alone."""

    length_scale: jax.Array  # []
    scale: jax.Array  # []
    period: jax.Array  # []


class Draws(NamedTuple):
    """The random numbers of one function. The columns are for context and targets, or the first is for all points."""

    hyperparameters: Hyperparameters
    x: jax.Array  # [P, 2]
    normal: jax.Array  # [P, 2], standard
    noise: jax.Array | None  # [P, 2], by Student's t


# exp(-d^2 / 2), (1 + sqrt(5) d + 5 d^2 / 3) exp(-sqrt(5) d) and exp(-2 sin^2(pi |x - x'| / period) / l^2), with
# d = |x - x'| / l: the last is the first between points of a circle.
KERNELS = {
    "rbf": lambda x, y, h: kernels.gaussian(x, y, _gamma(h)),
    "matern": lambda x, y, h: kernels.matern(x, y, _gamma(h), twice_nu=5),
    "periodic": lambda x, y, h: kernels.gaussian(_on_circle(x, h.period), _on_circle(y, h.period), _gamma(h)),
}


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """A law of functions, with N ~ U{min_context..max_context} context points and M ~ U{min_targets..max_points - N}.

    In the published code all tasks of a batch have the same N and M: experiments.harness.size_classes gives such sizes
    to `sample`. Without them each task has a size of its own. The law of one task is the same, and so are the expected
    loss and gradient: losses are means over tasks.

    Attributes:
      kernel: rbf, matern (nu = 5/2) or periodic.
      length_scale, scale, period: (lowest, highest) of the uniform law of each.
      noise: standard deviation of the Gaussian noise in y; more than 0, which keeps K positive definite without
        jitter: its smallest eigenvalue is noise^2, and the published 0.02^2 is far above the rounding of K, about 1e-6.
      t_scale: (lowest, highest) scale of further noise by Student's t, uniform for each point; (0, 0) is none. The
        published t_noise=t is (t, t), and its -1 is (0, 0.15).
      t_freedom: degrees of freedom of it; 2.1 is published.
      position: (lowest, highest) x.
      min_context, max_context, min_targets, max_points: of the numbers of points.
    """

    kernel: str
    length_scale: PositiveRange
    scale: PositiveRange
    period: PositiveRange
    noise: Positive
    t_scale: NotNegativeRange
    t_freedom: Positive
    position: Range
    min_context: Natural
    max_context: Natural
    min_targets: Count
    max_points: Count

    def __post_init__(self):
        choose(KERNELS, self.kernel, "kernel")
        if not self.min_context <= self.max_context <= self.max_points - self.min_targets:
            raise ValueError(
                f"min_context <= max_context <= max_points - min_targets does not hold for {self.min_context}, "
                f"{self.max_context}, {self.max_points} and {self.min_targets}"
            )

    @property
    def most_targets(self) -> int:
        """The slots of a task's targets."""
        return self.max_points - self.min_context

    @property
    def exact(self) -> bool:
        """Whether all noise is Gaussian, as oracle() takes it to be."""
        return self.t_scale[1] == 0

    @property
    def law(self) -> Law:
        """The law of N and M."""
        most = (self.max_points - context for context in range(self.min_context, self.max_context + 1))
        return Law(self.min_context, self.min_targets, tuple(most))

    def sample(self, key: jax.Array, data: None, slots: Slots | None = None, size: Size | None = None) -> Task:
        """One function, its Hyperparameters as the truth; `draw` and `fill` in one.

        Args:
          key: of the function.
          data: not used.
          slots: of context and targets; None: enough for every size, of which one is drawn from the key.
          size: N and M; None with slots: all slots are points, and there are no masks.
        """
        size_key, key = jax.random.split(key)
        if slots is None:
            law = self.law
            slots, size = law.slots, law.size(law.draw(size_key))
        return self.fill(self.draw(key, data, max(slots)), slots, size)

    def draw(self, key: jax.Array, data: None, points: int | None = None) -> Draws:
        """What is random in a function of up to `points` points in each column; None: of any size.

        `data` is not used. More points change none of the others.
        """
        uniform_key, normal_key, t_key = jax.random.split(key, 3)
        shape = (self.max_points if points is None else points, 2)
        uniform = jax.random.uniform(uniform_key, (2 + shape[0], 2))  # one draw: they are slow to compile
        ranges = self.length_scale, self.scale, self.period
        hyperparameters = Hyperparameters(*map(_within, ranges, uniform[:2].ravel()))
        noise = None if self.exact else student_noise(t_key, self.t_scale, self.t_freedom, shape)
        return Draws(hyperparameters, _within(self.position, uniform[2:]), jax.random.normal(normal_key, shape), noise)

    def fill(self, draws: Draws, slots: Slots, size: Size | None) -> Task:
        """The function at the points that are there: arrays of `slots`, in which empty slots are 0.

        A size of None: all slots are points, and there are no masks.
        """
        mask = size and jnp.concatenate([jnp.arange(held) < count for held, count in zip(slots, size)])
        points = self._function(draws, lambda columns: _joined(columns, slots), mask)
        part = lambda rows: jax.tree.map(lambda leaf: leaf[rows], points)
        return Task(part(slice(slots[0])), part(slice(slots[0], None)), draws.hyperparameters)

    def fill_points(self, draws: Draws, slots: Slots, size: Size | None) -> Task:
        """The function in arrays of `slots` for the context and all points, of sizes N and N + M.

        The target holds all points, of which the first N are the context. A size of None: all slots are points.
        """
        there = size and [jnp.arange(held) < count for held, count in zip(slots, size)]
        points = self._function(draws, lambda columns: columns[: slots[1], :1], there and there[1])
        context = Points(points.x[: slots[0]], points.y[: slots[0]], there and there[0])
        return Task(context, points, draws.hyperparameters)

    def _function(self, draws: Draws, rows: Callable, mask: jax.Array | None) -> Points:
        """Values at some rows (columns [P, 2] -> [n, 1]) of what was drawn. Absent points are 0."""
        x, normal, noise = jax.tree.map(rows, draws[1:])
        covariance = self._covariance(x, draws.hyperparameters)
        y = matmul(cholesky(covariance if mask is None else _of_present(covariance, mask)), normal)
        y = y if noise is None else y + noise
        return Points(x, y) if mask is None else Points(*(jnp.where(mask[:, None], of, 0) for of in (x, y)), mask)

    def oracle(self, task: Task, x: jax.Array, mask: jax.Array | None = None) -> JointNormal:
        """The posterior of y at x [M, 1], given the context and the truth. Absent targets have mean 0 and variance 1.

        With the Cholesky factor L of K over context C and targets T, mean = L_TC L_CC^-1 y_C, and L_TT is the factor of
        the posterior covariance: no difference of near numbers is taken, which float32 could not bear.
        """
        n = task.context.x.shape[-2]
        there = jnp.concatenate([whole_mask(task.context), whole_mask(Points(x, x, mask))])
        covariance = self._covariance(jnp.concatenate([task.context.x, x]), task.truth)
        factor = cholesky(_of_present(covariance, there))
        y = jnp.where(there[:n, None], task.context.y, 0)
        mean = matmul(factor[n:, :n], jax.scipy.linalg.solve_triangular(factor[:n, :n], y, lower=True))
        return JointNormal(mean[:, 0], scale_tril=factor[n:, n:], validate_args=not_jax_tracer(mean))

    def _covariance(self, x: jax.Array, hyperparameters: Hyperparameters) -> jax.Array:
        """K [n, n] of y at x [n, 1]."""
        signal = hyperparameters.scale**2 * KERNELS[self.kernel](x, x, hyperparameters)
        return signal + self.noise**2 * jnp.eye(len(x))


def _gamma(hyperparameters: Hyperparameters) -> jax.Array:
    return 0.5 / hyperparameters.length_scale**2


def _on_circle(x: jax.Array, period: jax.Array) -> jax.Array:
    """x [n, 1] -> [n, 2] on the unit circle, where |u - u'| = 2 |sin(pi (x - x') / period)|."""
    angle = 2 * jnp.pi * x / period
    return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], -1)


def _within(bounds: tuple, uniform: jax.Array) -> jax.Array:
    return bounds[0] + (bounds[1] - bounds[0]) * uniform


def _joined(columns: jax.Array, slots: Slots) -> jax.Array:
    """Columns [n, 2] of context and targets as one, [N + M, 1]."""
    return jnp.concatenate([columns[: slots[0], :1], columns[: slots[1], 1:]])


def _of_present(covariance: jax.Array, mask: jax.Array) -> jax.Array:
    """The covariance, where absent points are independent of all others and have variance 1."""
    return jnp.where(mask & mask[:, None], covariance, jnp.eye(len(mask)))
