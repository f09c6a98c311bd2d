"""Laws of the next time: against scipy, numerical integration, and Poisson processes by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from kvq_jax.nn.waiting_times import LogNormalMixture, SoftplusIntensity

pytestmark = pytest.mark.usefixtures("x64")

WEIGHT, LOC, SCALE = np.array([0.2, 0.5, 0.3]), np.array([-1.0, 0.4, 2.0]), np.array([0.3, 1.1, 0.6])
TIMES = np.array([1e-3, 0.2, 1.0, 3.0, 40.0])
# start, slope, beta of each kind: rising, constant, falling, and several of which some or all fall.
LINES = {
    "rising": [(-0.5, 0.7, 1.0)],
    "constant": [(0.3, 0.0, 2.0)],
    "falling": [(1.0, -0.6, 0.5)],
    "nearly constant": [(4.0, -1e-4, 1.0)],
    "some fall": [(2.0, -3.0, 1.0), (-1.0, 0.2, 0.3)],
    "all fall": [(2.0, -3.0, 1.0), (-1.0, -0.1, 0.3)],
}
UNIT = 2.5


def mixture():
    return LogNormalMixture(*(jnp.asarray(x) for x in (np.log(WEIGHT), LOC, SCALE)))


def of_lines(lines):
    start, slope, beta = jnp.asarray(lines).T
    return SoftplusIntensity(start, slope, beta, jnp.asarray(UNIT))


def intensities(lines, time):
    return [beta * np.logaddexp(0, (start + slope * time / UNIT) / beta) / UNIT for start, slope, beta in lines]


def integral(function, low, high, **options):
    return integrate.quad(function, low, high, limit=500, epsabs=1e-12, epsrel=1e-12, **options)[0]


def test_a_mixture_of_log_normals_is_that_of_scipy():
    parts = [stats.lognorm(s, scale=math.exp(loc)) for loc, s in zip(LOC, SCALE)]
    mix = lambda name: sum(w * getattr(part, name)(TIMES) for w, part in zip(WEIGHT, parts))
    law = mixture()
    np.testing.assert_allclose(law.log_prob(TIMES), np.log(mix("pdf")), rtol=1e-10)
    np.testing.assert_allclose(law.log_survival(TIMES), np.log(mix("sf")), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(law.cdf(TIMES), mix("cdf"), rtol=1e-10)
    np.testing.assert_allclose(law.mean, sum(w * part.mean() for w, part in zip(WEIGHT, parts)), rtol=1e-12)


def test_a_mixture_at_its_ends():
    """Time 0 has density 0 and survival 1, and gradients that are numbers; quantiles 0 and 1 are 0 and infinity."""
    law = mixture()
    assert law.cdf(0.0) == 0 and abs(law.log_survival(0.0)) < 1e-15 and law.log_prob(0.0) < -1e4
    gradients = jax.grad(lambda law, time: law.log_prob(time) + law.log_survival(time), (0, 1))(law, 0.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert law.quantile(0.0) == 0 and law.quantile(1.0) == np.inf


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_intensities_integrate_to_their_compensator(lines):
    law = of_lines(lines)
    for time in TIMES:
        np.testing.assert_allclose(jnp.exp(law.log_intensities(time)), intensities(lines, time), rtol=1e-10)
        expected = integral(lambda t: sum(intensities(lines, t)), 0, time)
        np.testing.assert_allclose(law.compensator(time), expected, rtol=1e-10)


@pytest.mark.parametrize("lines", [LINES["falling"], LINES["all fall"]], ids=["one", "several"])
def test_never_is_what_the_density_does_not_integrate_to(lines):
    law = of_lines(lines)
    density = jax.jit(lambda t: jnp.exp(law.log_prob(t)))
    mass = integral(lambda t: float(density(t)), 0, 30) + integral(lambda t: float(density(t)), 30, 2000)
    np.testing.assert_allclose(1 - law.never, mass, rtol=1e-8)
    assert 1e-4 < law.never < 0.5
    assert law.quantile(1 - law.never + 1e-9) == np.inf and law.quantile(1 - law.never - 1e-4) < np.inf
    np.testing.assert_allclose(law.cdf(law.median), (1 - law.never) / 2, rtol=1e-10)


LAWS = {"mixture": mixture} | {name: lambda lines=lines: of_lines(lines) for name, lines in LINES.items()}


@jax.jit
def found(law):
    """The derivative of the cdf; levels, and the cdf at their quantiles; mass and first moment of the density."""
    slope = jax.vmap(jax.grad(lambda time: law.cdf(time)))(jnp.asarray(TIMES))
    levels = jnp.linspace(0.01, 0.95, 7) * (1 - law.never)
    logs = jnp.linspace(-14, 14, 4001)  # of times: the trapezoid rule converges fast there
    weights = (logs[1] - logs[0]) * jnp.exp(law.log_prob(jnp.exp(logs)) + logs)
    moments = jnp.stack([(weights * jnp.exp(power * logs)).sum() for power in (0, 1)])
    return slope, levels, law.cdf(law.quantile(levels)), moments


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_density_survival_quantiles_and_mean_are_of_one_law(make):
    law = make()
    slope, levels, reached, (mass, first) = found(law)
    np.testing.assert_allclose(slope, jnp.exp(law.log_prob(TIMES)), rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(law.log_survival(TIMES[:3]), jnp.log1p(-law.cdf(TIMES[:3])), rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(reached, levels, rtol=1e-9)
    np.testing.assert_allclose(mass, 1 - law.never, rtol=1e-5)
    np.testing.assert_allclose(law.mean, first / mass, rtol=1e-4)


def test_a_constant_intensity_is_a_poisson_process():
    """rate r = log(2) / unit: log r - r t, mean 1 / r, median log(2) / r; two kinds at 3 : 1 whatever the time."""
    law, rate = of_lines([(0.0, 0.0, 1.0)]), math.log(2) / UNIT
    np.testing.assert_allclose(law.log_prob(TIMES), math.log(rate) - rate * TIMES, rtol=1e-12)
    np.testing.assert_allclose(law.mean, 1 / rate, rtol=1e-8)
    np.testing.assert_allclose(law.median, UNIT, rtol=1e-12)
    assert law.never == 0
    kinds = of_lines([(0.0, 0.0, 3.0), (0.0, 0.0, 1.0)])
    np.testing.assert_allclose(np.exp(kinds.log_kinds(TIMES)), np.broadcast_to([0.75, 0.25], (5, 2)), rtol=1e-12)
    np.testing.assert_allclose(np.exp(kinds.log_kinds(None)), [0.75, 0.25], rtol=1e-12)


def test_kinds_without_a_time_are_their_average_over_times():
    lines = LINES["all fall"]
    law = of_lines(lines)
    survival = jax.jit(lambda t: jnp.exp(law.log_survival(t)))
    share = lambda k: integral(lambda t: intensities(lines, t)[k] * float(survival(t)), 0, 300)
    shares = np.array([share(0), share(1)])
    np.testing.assert_allclose(np.exp(law.log_kinds(None)), shares / shares.sum(), rtol=1e-6)
    np.testing.assert_allclose(shares.sum(), 1 - law.never, rtol=1e-6)


@pytest.mark.parametrize("name", ["mixture", "rising", "all fall"])
def test_samples_have_the_law(name):
    law = LAWS[name]()
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (4000, *x.shape)), law)
    drawn = np.asarray(jax.jit(lambda law: law.sample(jax.random.key(3)))(many))
    here = np.isfinite(drawn)
    assert abs((~here).mean() - law.never) < 4 * math.sqrt(0.25 / 4000)
    if not here.all():
        never = np.stack([law.cdf(np.inf), np.exp(law.log_survival(np.inf)), np.exp(law.log_prob(np.inf))])
        np.testing.assert_allclose(never, [1 - law.never, law.never, 0], rtol=1e-12)
        slopes = jax.grad(lambda law, time: law.cdf(time).sum() + law.log_survival(time).sum())(law, drawn)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert stats.kstest(np.asarray(law.cdf(drawn[here]) / (1 - law.never)), "uniform").pvalue > 1e-3


def test_float32_is_as_good_as_float32():
    """Of lines of large and small values: the compensator, where a difference of integrals could cancel."""
    lines = [(start, slope, 1.0) for start in (-20.0, 0.0, 300.0) for slope in (-3.0, -1e-3, 1e-5, 2.0)]
    for line in lines:
        exact, single = of_lines([line]), jax.tree.map(lambda x: x.astype(jnp.float32), of_lines([line]))
        for time in (1e-6, 0.1, 20.0, 1e4):
            got = single.compensator(jnp.float32(time))
            assert got.dtype == jnp.float32
            np.testing.assert_allclose(got, exact.compensator(time), rtol=2e-5)


@pytest.mark.parametrize("start", [-20.0, -30.0])
def test_the_mean_of_what_seldom_happens(start):
    """A line that falls this far down has the intensity exp(start - t / 10): if it ever happens, then after 10."""
    law = of_lines([(start, -0.1 * UNIT, 1.0)])
    np.testing.assert_allclose(law.mean, 10, rtol=1e-5)
