"""Laws of the time until something happens: mixtures of log-normals, and intensities of several kinds of it.

A law is a pytree with leading dimensions [...]. Times broadcast against them, so that times [T, ...] ask for T points
of each density; they are in the unit of the law. Densities are per unit of time. Computes in the dtype of its arrays.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import log_ndtr, ndtr, ndtri


class LogNormalMixture(NamedTuple):
    """log t is a mixture of normals (Shchur et al. 2020, arXiv 1909.12127, Section 3.2): sum_k w_k N(loc_k, scale_k^2).

    Time 0 counts as the least positive number there is, so that densities and gradients are finite everywhere.
    """

    log_weight: Array  # [..., K], normalised
    loc: Array  # [..., K], of log t
    scale: Array  # [..., K], > 0

    @property
    def never(self) -> Array:
        """The probability that it never happens, [...]: 0."""
        return jnp.zeros(self.loc.shape[:-1], self.loc.dtype)

    def log_prob(self, time: Array) -> Array:
        """Log density at times [...]."""
        log, z = self._standardised(time)
        normal = -0.5 * z**2 - jnp.log(self.scale) - 0.5 * math.log(2 * math.pi)
        return jax.nn.logsumexp(self.log_weight + normal, -1) - log

    def log_survival(self, time: Array) -> Array:
        """log P(later than these times [...])."""
        return jax.nn.logsumexp(self.log_weight + log_ndtr(-self._standardised(time)[1]), -1)

    def cdf(self, time: Array) -> Array:
        """P(by these times [...])."""
        return jnp.sum(jnp.exp(self.log_weight) * ndtr(self._standardised(time)[1]), -1)

    @property
    def mean(self) -> Array:
        """sum_k w_k exp(loc_k + scale_k^2 / 2), [...]; wide components make it very large, up to infinity."""
        return jnp.exp(jax.nn.logsumexp(self.log_weight + self.loc + self.scale**2 / 2, -1))

    @property
    def median(self) -> Array:
        """The time by which it has happened in half of the cases, [...]; carries no gradient."""
        return self.quantile(0.5)

    def quantile(self, q: Array | float) -> Array:
        """The time by which it has happened with probability q [...] in [0, 1]; carries no gradient."""
        law = jax.tree.map(lax.stop_gradient, self)
        q = jnp.asarray(q, self.loc.dtype)
        of_components = law.loc + law.scale * ndtri(q)[..., None]  # the quantile of a mixture lies between these
        cdf = lambda log: jnp.sum(jnp.exp(law.log_weight) * ndtr((log[..., None] - law.loc) / law.scale), -1)
        return jnp.exp(_bisected(lambda log: cdf(log) < q, of_components.min(-1), of_components.max(-1)))

    def sample(self, key: Array) -> Array:
        """One time for each law, [...]; carries no gradient to the weights."""
        of_component, of_normal = jax.random.split(key)
        chosen = jax.random.categorical(of_component, self.log_weight)[..., None]
        loc, scale = (jnp.take_along_axis(x, chosen, -1)[..., 0] for x in (self.loc, self.scale))
        return jnp.exp(loc + scale * jax.random.normal(of_normal, loc.shape, loc.dtype))

    def _standardised(self, time: Array) -> tuple[Array, Array]:
        """log t [...] and its place in each component [..., K]."""
        time, tiny = jnp.asarray(time, self.loc.dtype), jnp.finfo(self.loc.dtype).tiny
        log = jnp.log(jnp.where(time > tiny, time, tiny))  # and not maximum: inf times 0 would be its gradient at 0
        return log, (log[..., None] - self.loc) / self.scale


class SoftplusIntensity(NamedTuple):
    """The first of K things to happen, each with an intensity that is a softplus of a line (Zuo et al. 2020, THP).

        lambda_k(t) = beta_k log(1 + exp((start_k + slope_k t / unit) / beta_k)) / unit

    arXiv 2002.09291, "Continuous Time Conditional Intensity", with t the time since the last event. The compensator has
    a closed form, a difference of dilogarithms, which the paper and its code approximate. Where all slopes are negative
    the intensities have finite integrals: with probability `never` nothing ever happens.

    Quantiles, means and the marginal of the kinds are found between 2^-30 and 2^40 units, and later times are taken for
    the last of these in integrals.
    """

    start: Array  # [..., K]
    slope: Array  # [..., K], per unit
    beta: Array  # [..., K], > 0
    unit: Array  # [...], > 0, the time in which start and slope are measured

    @property
    def never(self) -> Array:
        """The probability that nothing ever happens, [...]."""
        return jnp.exp(-self._left(jnp.zeros_like(self.unit)))

    def log_intensities(self, time: Array) -> Array:
        """log lambda_k(t), [..., K], at times [...]."""
        inner = (self.start + self.slope * self._scaled(time)[..., None]) / self.beta
        return jnp.log(self.beta) + _log_softplus(inner) - jnp.log(self.unit)[..., None]

    def log_intensity(self, time: Array) -> Array:
        """log sum_k lambda_k(t), [...]."""
        return jax.nn.logsumexp(self.log_intensities(time), -1)

    def compensator(self, time: Array) -> Array:
        """The integral of the intensity from 0 to times [...], which may be infinite."""
        return self._until(self._scaled(jnp.minimum(time, math.exp(_LAST) * self.unit)))

    def log_prob(self, time: Array) -> Array:
        """Log density at times [...]; of an infinite one -infinity."""
        known = jnp.isfinite(jnp.asarray(time, self.start.dtype))
        finite = jnp.where(known, time, 1)
        return jnp.where(known, self.log_intensity(finite) - self.compensator(finite), -jnp.inf)

    def log_survival(self, time: Array) -> Array:
        """log P(later than these times [...], or never)."""
        return -self.compensator(time)

    def cdf(self, time: Array) -> Array:
        """P(by these times [...])."""
        return -jnp.expm1(-self.compensator(time))

    @property
    def mean(self) -> Array:
        """The mean time given that it ever happens, [...]: where `never` is 0, the mean."""
        log_times = self._grid()

        def later(log):  # P(later, but not never)
            scaled = jnp.exp(log)
            return -jnp.exp(-self._until(scaled)) * jnp.expm1(-self._left(scaled)) * scaled

        before = jnp.exp(log_times[0] - _STEP / 2)  # if it ever happens, it is later than the grid begins
        return self.unit * (before + _STEP * _summed(later, log_times) / self._ever())

    @property
    def median(self) -> Array:
        """The median time given that it ever happens, [...]: where `never` is 0, quantile(0.5)."""
        return self._when(-jnp.log1p(-self._ever() / 2))

    def quantile(self, q: Array | float) -> Array:
        """The time by which it has happened with probability q [...]; infinite for q >= 1 - never; no gradient."""
        return self._when(-jnp.log1p(-jnp.asarray(q, self.start.dtype)))

    def sample(self, key: Array) -> Array:
        """One time for each law, [...], infinite if nothing ever happens; carries no gradient."""
        return self._when(jax.random.exponential(key, self.unit.shape, self.unit.dtype))

    def log_kinds(self, time: Array | None) -> Array:
        """log P(kind | it happens at these times [...]), [..., K]; None: given that it ever happens."""
        if time is not None:
            return jax.nn.log_softmax(self.log_intensities(time), -1)

        def density(log):
            scaled = jnp.exp(log)
            survival = jnp.exp(-self._until(scaled))[..., None]
            return survival * jnp.exp(self.log_intensities(scaled * self.unit)) * (scaled * self.unit)[..., None]

        total = _summed(density, self._grid())
        return jnp.log(jnp.maximum(total / total.sum(-1, keepdims=True), jnp.finfo(total.dtype).tiny))

    def _scaled(self, time: Array) -> Array:
        return jnp.asarray(time, self.start.dtype) / self.unit

    def _until(self, scaled: Array) -> Array:
        """The compensator, of times in units."""
        time = scaled[..., None]
        of_kinds = self.beta * time * _mean_softplus(self.start / self.beta, self.slope * time / self.beta)
        return of_kinds.sum(-1)

    def _left(self, scaled: Array) -> Array:
        """The integral of the intensity from times in units to infinity."""
        inner = (self.start + self.slope * scaled[..., None]) / self.beta
        falls = self.slope < 0
        of_kinds = self.beta**2 / jnp.where(falls, -self.slope, 1) * _integral_of_softplus(inner)
        return jnp.where(falls, of_kinds, jnp.inf).sum(-1)

    def _ever(self) -> Array:
        return -jnp.expm1(-self._left(jnp.zeros_like(self.unit)))

    def _when(self, integral: Array) -> Array:
        """The time at which the compensator reaches `integral` [...]."""
        law = jax.tree.map(lax.stop_gradient, self)
        integral = lax.stop_gradient(integral)
        below = lambda log: law._until(jnp.exp(log)) < integral
        shape = jnp.broadcast_shapes(integral.shape, law.unit.shape)
        ends = (jnp.full(shape, end, law.start.dtype) for end in (_FIRST, _LAST))
        time = jnp.where(integral > 0, jnp.exp(_bisected(below, *ends)), 0)
        return law.unit * jnp.where(integral < law._left(jnp.zeros_like(law.unit)), time, jnp.inf)

    def _grid(self) -> Array:
        return jnp.arange(_FIRST, _LAST, _STEP, dtype=self.start.dtype)


_FIRST, _LAST = -30 * math.log(2), 40 * math.log(2)  # of the log of a time in units
_STEP = 0.2  # of it: the trapezoid rule errs by 1e-6 at most for lines that bend sharply


def _bisected(below: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where `below` turns from True to False between low and high [...]."""

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        right = below(middle)
        return jnp.where(right, middle, low), jnp.where(right, high, middle)

    low, high = lax.fori_loop(0, 64, halve, (low, high))
    return (low + high) / 2


def _summed(function: Callable[[Array], Array], points: Array) -> Array:
    """sum_i function(points_i), in the memory of one."""
    start = jnp.zeros(jax.eval_shape(function, points[0]).shape, points.dtype)
    return lax.scan(lambda total, point: (total + function(point), None), start, points)[0]


def _log_softplus(x: Array) -> Array:
    """log log(1 + exp(x)), which is x far below 0."""
    return jnp.where(x < -20, x, jnp.log(jax.nn.softplus(jnp.maximum(x, -20))))


def _mean_softplus(x: Array, step: Array) -> Array:
    """The mean of log(1 + exp(.)) between x and x + step."""
    near = jnp.abs(step) < 0.5  # here a difference of integrals would cancel
    short, long = jnp.where(near, step, 0), jnp.where(near, 1, step)
    by_rule = sum(
        float(w) / 2 * jax.nn.softplus(x + short * (float(node) + 1) / 2) for node, w in zip(_NODES, _WEIGHTS)
    )
    end = x + long
    low, high = jnp.maximum(x, 0), jnp.maximum(end, 0)
    squares = (high - low) * (high + low) / 2 + (jnp.pi**2 / 6) * (_positive(end) - _positive(x))
    return jnp.where(near, by_rule, (squares + _bounded(end) - _bounded(x)) / long)


def _integral_of_softplus(x: Array) -> Array:
    """The integral of log(1 + exp(.)) from -infinity to x: -Li_2(-exp(x))."""
    return jnp.maximum(x, 0) ** 2 / 2 + (jnp.pi**2 / 6) * _positive(x) + _bounded(x)


def _positive(x: Array) -> Array:
    return (x > 0).astype(x.dtype)


def _bounded(x: Array) -> Array:
    """Of the integral what is left of x^2 / 2 + pi^2 / 6 for x > 0: +- the integral to -|x|, which is at most 0.83.

    With v = log(1 + exp(-|x|)) it is v + v^2 / 4 + v^3 / 36 - ..., whose coefficients are Bernoulli numbers.
    """
    v = jax.nn.softplus(jnp.where(x > 0, -x, x))
    series = v + v**2 / 4 + sum(number / math.factorial(n + 1) * v ** (n + 1) for n, number in _BERNOULLI)
    return jnp.where(x > 0, -series, series)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
_BERNOULLI = [(2, 1 / 6), (4, -1 / 30), (6, 1 / 42), (8, -1 / 30), (10, 5 / 66), (12, -691 / 2730)]
