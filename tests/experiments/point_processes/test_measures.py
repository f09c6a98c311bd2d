"""Metrics of forecasts: by hand, and against simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from experiments.point_processes.events import measures
from experiments.point_processes.events.experiment import intensity
from kvq_jax.models.event_processes.events import EventLogLikelihood, Events


class Exponential(dist.Exponential):
    """Gaps of a Poisson process, with what a law of the next time has."""

    median = property(lambda self: jnp.log(2.0) / self.rate)

    def log_survival(self, gap):
        return -self.rate * gap


class Constant:
    """The forecasts [L + 1] of a Poisson process whose marks have fixed probabilities."""

    def __init__(self, rate, length, logits):
        self.time = Exponential(jnp.full(length + 1, rate))
        self.logits = jnp.asarray(logits)

    def mark_logits(self, gap):
        return jnp.broadcast_to(self.logits, (*gap.shape, len(self.logits)))


EVENTS = Events(jnp.array([1.0, 2.0, 0.5, 0.0]), jnp.array([0, 1, 1, 0]), jnp.arange(4) < 3, jnp.array(1.5))


def test_sums_of_a_sequence_by_hand():
    found = measures.forecast_sums(Constant(0.5, 4, [0.0, 1.0]), EVENTS)
    gaps, mean, median = np.array([1.0, 2.0, 0.5]), 2.0, np.log(2) / 0.5
    expected = {
        "number": 3,
        "squared_mean": np.square(mean - gaps).sum(),
        "absolute_mean": np.abs(mean - gaps).sum(),
        "squared_median": np.square(median - gaps).sum(),
        "absolute_median": np.abs(median - gaps).sum(),
        "squared_log": np.square(np.log(median / gaps)).sum(),
        "squared_sum": (mean - gaps).sum() ** 2,
        "right": 2,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)
    places = np.floor((1 - np.exp(-gaps / 2)) * measures.BINS).astype(int)
    np.testing.assert_array_equal(np.flatnonzero(found["pit"]), np.sort(places))


class Places(Constant):
    """Forecast i tells mark i of an event within one unit of time, and mark 9 of a later one."""

    def mark_logits(self, gap):
        return jax.nn.one_hot(jnp.where(gap <= 1, jnp.arange(len(gap)), 9), 10)


def test_a_mark_is_told_by_the_forecast_of_its_place_and_gap():
    events = EVENTS._replace(mark=jnp.arange(4))
    assert measures.forecast_sums(Places(0.5, 4, []), events)["right"] == 2  # the second of three comes later


def test_likelihoods_are_those_of_all_events_over_their_number():
    found = EventLogLikelihood(jnp.array([-1.0, -2.0]), jnp.array([-0.5, -0.25]), jnp.array(-4.0))
    sums = {name: np.full((1, 3), value) for name, value in measures.likelihood_sums(found).items()}
    sums |= {f"oracle_{name}": value + 1 for name, value in sums.items()}
    blank = measures.forecast_sums(Constant(0.5, 4, [0.0, 1.0]), EVENTS)
    sums |= {name: np.stack([np.asarray(value)] * 3)[None] for name, value in blank.items()}
    sums["number"] = np.full((1, 3), 2)
    got = {name: values.mean() for name, values in measures.metrics(sums, True, True).items()}
    assert got["nll_time"] == pytest.approx(7 / 2) and got["nll_mark"] == pytest.approx(0.75 / 2)
    assert got["nll"] == pytest.approx(7.75 / 2) and got["oracle_nll"] == pytest.approx(4.75 / 2)
    assert got["gap_nll"] == pytest.approx(3 / 2) and got["gap_nll_mark"] == pytest.approx(1 / 2)
    single = measures.metrics(sums, False, False)
    assert not any("mark" in name or name == "accuracy" or "oracle" in name for name in single)


@pytest.mark.parametrize("root", [False, True])
def test_the_error_of_a_mean_over_events_is_that_of_many_samples(root):
    """Sequences of different lengths whose events share a level: events of one sequence are not independent."""
    rng, sequences = np.random.default_rng(0), 200
    number = rng.integers(1, 20, (2000, sequences))
    total = number * rng.gamma(2.0, 1.0, (2000, sequences))
    values = measures.per_event(total, number, root)
    ratio = total.sum(1) / number.sum(1)
    np.testing.assert_allclose(values.mean(1), np.sqrt(ratio) if root else ratio, rtol=1e-12)
    told = values.std(1, ddof=1) / np.sqrt(sequences)
    np.testing.assert_allclose(told.mean(), values.mean(1).std(), rtol=0.05)
    naive = (total / number).std(1).mean() / np.sqrt(sequences)
    assert root or abs(naive / values.mean(1).std() - 1) > 0.1  # the test can tell


def test_distance_from_uniform_is_that_of_scipy():
    rng = np.random.default_rng(1)
    uniform = rng.uniform(size=5000) ** 1.2
    counts = np.histogram(uniform, measures.BINS, (0, 1))[0]
    np.testing.assert_allclose(measures.distance(counts), stats.kstest(uniform, "uniform").statistic, atol=1e-3)
    assert measures.distance(np.ones(10)) == pytest.approx(0)
    samples = [measures.distance(np.histogram(rng.uniform(size=300), 1000, (0, 1))[0]) for _ in range(400)]
    assert 0.01 < np.mean(np.array(samples) > measures.bound(300)) < 0.1


def test_the_intensity_of_a_poisson_process_is_its_rate():
    time = jnp.linspace(0, 5, 50)
    np.testing.assert_allclose(intensity(Constant(0.7, 4, [0.0]), EVENTS, time), 0.7, rtol=1e-5)


def test_the_intensity_at_an_event_is_the_one_before_it():
    """Forecasts that differ by their place: the intensity tells which was asked."""
    forecast = Constant(1.0, 4, [0.0])
    forecast.time = Exponential(jnp.arange(1.0, 6.0))
    time = jnp.array([0.0, 1.0, 1.1, 3.0, 3.2, 3.5, 4.9])
    np.testing.assert_allclose(
        jax.jit(intensity, static_argnums=0)(forecast, EVENTS, time), [1, 1, 2, 2, 3, 3, 4], rtol=1e-5
    )
