"""Point processes: samplers and likelihoods prove each other, by time rescaling, by integration and by hand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from experiments.harness.errors import ConfigError
from experiments.harness.settings import build
from experiments.tasks.event_process import exponential
from experiments.tasks.event_processes import PROCESSES, Hawkes, Poisson, Renewal, SelfCorrecting
from kvq_jax.models.event_processes.events import Events, number, padded

SEQUENCES = 512
ENDS = dict(max_events=24, horizon=6.0)  # both ends happen
BRANCHING = (
    ((0.3, 0.0, 0.2, 0.0, 0.1), (0.4, 0.2, 0.0, 0.0, 0.0), (0.0, 0.5, 0.1, 0.1, 0.0), (0.0,) * 5, (0.1,) * 5),
    ((0.0,) * 5, (0.0, 0.1, 0.1, 0.0, 0.2), (0.1, 0.0, 0.0, 0.0, 0.0), (0.3, 0.0, 0.0, 0.4, 0.0), (0.0,) * 5),
)
KINDS = {
    "poisson": Poisson(**ENDS, rate=1.5),
    "renewal": Renewal(**ENDS, mean=1.0, std=6.0),
    "self_correcting": SelfCorrecting(**ENDS, mu=1.0, alpha=0.5),
    "hawkes": Hawkes(**ENDS, base=(0.2,), branching=(((0.4,),), ((0.4,),)), decay=(1.0, 20.0)),
    "marks": Hawkes(**ENDS, base=(0.3, 0.2, 0.0, 0.1, 0.5), branching=BRANCHING, decay=(1.0, 4.0)),
}
WRONG = {
    "poisson": Poisson(**ENDS, rate=1.8),
    "renewal": Renewal(**ENDS, mean=1.0, std=4.0),
    "self_correcting": SelfCorrecting(**ENDS, mu=1.0, alpha=0.7),
    "hawkes": Hawkes(**ENDS, base=(0.2,), branching=(((0.8,),), ((0.0,),)), decay=(1.0, 20.0)),
    "marks": Hawkes(
        **ENDS, base=(0.3, 0.2, 0.0, 0.1, 0.5), branching=BRANCHING[:1] + (((0.0,) * 5,) * 5,), decay=(1.0, 4.0)
    ),
}


@functools.cache
def sampled(name):
    """Many sequences of a process."""
    return jax.jit(jax.vmap(KINDS[name].sample))(jax.random.split(jax.random.key(0), SEQUENCES))


@functools.cache
def told(name, wrong=False):
    """The log-likelihoods and compensators that the process, or a wrong one, gives the sequences of a process."""
    process = (WRONG if wrong else KINDS)[name]
    both = lambda events: (process.log_likelihood(events), process.compensator(events))
    return jax.jit(jax.vmap(both))(sampled(name))


def residuals(name, wrong=False):
    """The first three residuals of each sequence, of which the end at the horizon may have cut one: it is drawn on.

    What is left of an Exp(1) that is not over is Exp(1).
    """
    log_likelihood, compensator = told(name, wrong)
    first, there = np.array(compensator)[:, :3], np.asarray(sampled(name).mask)[:, :3]
    drawn = np.random.default_rng(0).exponential(size=first.shape)
    cut = np.cumsum(~there, -1) == 1
    first = np.where(cut, drawn - np.asarray(log_likelihood.rest)[:, None], np.where(there, first, drawn))
    return first


@pytest.mark.parametrize("name", KINDS)
def test_residuals_are_exponential(name):
    """Each of the first three gaps alone, the horizon's cut among them, and that they are independent."""
    of_first = residuals(name)
    for gap in of_first.T:
        assert scipy.stats.kstest(gap, "expon").pvalue > 0.01
    assert scipy.stats.kstest(of_first.ravel(), "expon").pvalue > 0.01
    levels = scipy.stats.expon.cdf(of_first)
    assert abs(np.corrcoef(levels.T)[np.triu_indices(3, 1)]).max() < 3.5 / np.sqrt(SEQUENCES)
    assert (~sampled(name).mask).any() and (sampled(name).rest > 0).any()  # the horizon did cut


@pytest.mark.parametrize("name", KINDS)
def test_events_are_as_many_as_the_compensator_says(name):
    """The number of events less the integrated intensity has mean 0 and the variance of the number."""
    for wrong in (False, True):
        log_likelihood, compensator = told(name, wrong)
        seen = np.asarray(number(sampled(name)))
        expected = np.asarray(compensator).sum(-1) - np.asarray(log_likelihood.rest)
        score = (seen - expected).sum() / np.sqrt(seen.sum())
        ks = scipy.stats.kstest(residuals(name, wrong).ravel(), "expon").pvalue
        fits = abs(score) < 3 and ks > 0.01
        assert fits != wrong, (score, ks)


@pytest.mark.parametrize("name", KINDS)
def test_sequences_end_at_the_horizon_or_the_last_event(name):
    events = sampled(name)
    full = np.asarray(events.mask).all(-1)
    np.testing.assert_array_equal(np.asarray(events.rest)[full], 0)
    np.testing.assert_allclose((events.gap.sum(-1) + events.rest)[~full], ENDS["horizon"], rtol=1e-6)
    assert (events.gap.sum(-1) <= ENDS["horizon"] * 1.000001).all()
    assert np.all(np.asarray(events.gap)[events.mask] > 0) and not np.asarray(events.gap)[~events.mask].any()
    assert not np.asarray(events.mark)[~events.mask].any() and events.mark.max() < KINDS[name].num_marks
    assert (np.diff(np.asarray(events.mask, int)) <= 0).all()


def test_marks_come_as_often_as_their_probabilities_say():
    """Those of the first eight events, each given all before it; not so by a law with the wrong branching."""
    events, first = sampled("marks"), 8
    there = np.asarray(events.mask)[:, :first]
    seen = np.eye(5)[np.asarray(events.mark)[:, :first]]

    def scores(process):
        def of_mark(place, mark):
            exchanged = events._replace(mark=events.mark.at[:, place].set(mark))
            return jax.vmap(process.log_likelihood)(exchanged).mark[:, place]

        of_marks = jax.vmap(jax.vmap(of_mark, (None, 0), -1), (0, None), 1)
        probability = np.exp(jax.jit(of_marks)(jnp.arange(first), jnp.arange(5)))  # [sequences, first, 5]
        np.testing.assert_allclose(probability[there].sum(-1), 1, rtol=1e-5)
        probability = probability[there]
        return (seen[there] - probability).sum(0) / np.sqrt((probability * (1 - probability)).sum(0))

    assert abs(scores(KINDS["marks"])).max() < 3 < abs(scores(WRONG["marks"])).max()


def by_hand(gap, mark=None, rest=0.0):
    """A sequence with all events there."""
    return Events(
        jnp.asarray(gap), jnp.zeros(len(gap), jnp.int32) if mark is None else jnp.asarray(mark), None, jnp.asarray(rest)
    )


def test_likelihoods_by_hand():
    n, gap, rest = 3, [0.5, 1.0, 0.25], 2.0
    found = Poisson(**ENDS, rate=1.5).log_likelihood(by_hand(gap, rest=rest))
    np.testing.assert_allclose(found.total, n * np.log(1.5) - 1.5 * (sum(gap) + rest), rtol=1e-6)

    law = scipy.stats.lognorm(s=np.sqrt(np.log(37)), scale=np.exp(-np.log(37) / 2))
    np.testing.assert_allclose([law.mean(), law.std()], [1, 6])
    found = KINDS["renewal"].log_likelihood(by_hand(gap, rest=rest))
    np.testing.assert_allclose(found.time, law.logpdf(gap), rtol=1e-5)
    np.testing.assert_allclose(found.rest, law.logsf(rest), rtol=1e-5)

    found = KINDS["self_correcting"].log_likelihood(by_hand(gap, rest=rest))
    time, ends = np.cumsum(gap), np.array([0, *np.cumsum(gap), sum(gap) + rest])
    seen = np.arange(n + 1) * 0.5  # alpha
    integral = np.exp(ends[1:] - seen) - np.exp(ends[:-1] - seen)
    np.testing.assert_allclose(found.time, time - seen[:-1] - integral[:-1], rtol=1e-5)
    np.testing.assert_allclose(found.rest, -integral[-1], rtol=1e-5)


def test_a_hawkes_process_by_hand():
    """Two marks, of which only the first excites, and only the second: the second event is what its one parent says."""
    process = Hawkes(**ENDS, base=(1.0, 0.5), branching=(((0.0, 0.6), (0.0, 0.0)),), decay=(2.0,))
    found = process.log_likelihood(by_hand([0.5, 0.3], [0, 1], 0.7))
    second = 0.5 + 0.6 * 2 * np.exp(-2 * 0.3)
    np.testing.assert_allclose(found.time[0], np.log(1.5) - 1.5 * 0.5, rtol=1e-6)
    np.testing.assert_allclose(found.time[1], np.log(1 + second) - 1.5 * 0.3 - 0.6 * (1 - np.exp(-0.6)), rtol=1e-5)
    np.testing.assert_allclose(found.mark, np.log([1 / 1.5, second / (1 + second)]), rtol=1e-5)
    np.testing.assert_allclose(found.rest, -1.5 * 0.7 - 0.6 * (np.exp(-0.6) - np.exp(-2.0)), rtol=1e-5)


def test_hawkes_processes_that_are_others():
    """Without branching: Poisson, with marks by their base rates. K like marks: one, and a uniform choice of K."""
    events = jax.tree.map(lambda leaf: leaf[:4], sampled("hawkes"))
    marked = events._replace(mark=jax.random.randint(jax.random.key(1), events.mark.shape, 0, 2) * events.mask)
    log_likelihood = lambda process, events: jax.jit(jax.vmap(process.log_likelihood))(events)
    still = Hawkes(**ENDS, base=(0.9, 0.6), branching=(((0.0,) * 2,) * 2,), decay=(1.0,))
    found, poisson = log_likelihood(still, marked), log_likelihood(KINDS["poisson"], events)
    np.testing.assert_allclose(found.time, poisson.time, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.rest, poisson.rest, rtol=1e-5)
    np.testing.assert_allclose(
        found.mark, jnp.where(events.mask, jnp.log(jnp.array([0.6, 0.4]))[marked.mark], 0), rtol=1e-5
    )

    like = Hawkes(**ENDS, base=(0.1, 0.1), branching=(((0.2,) * 2,) * 2,) * 2, decay=(1.0, 20.0))
    found, one = log_likelihood(like, marked), log_likelihood(KINDS["hawkes"], events)
    np.testing.assert_allclose(found.time, one.time, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.rest, one.rest, rtol=1e-5)
    np.testing.assert_allclose(found.mark, -np.log(2) * events.mask, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_likelihood_is_the_integral_of_the_intensity(x64, name):
    """By Gauss-Legendre between events, in float64; the intensity at an event is that just before it."""
    process, some = KINDS[name], np.argmax(np.asarray(sampled(name).mask).sum(-1) > 4)
    events = jax.tree.map(lambda leaf: np.asarray(leaf)[some], sampled(name))
    n = int(events.mask.sum())
    assert n > 4
    events = events._replace(gap=events.gap.astype(float), rest=np.float64(events.rest))
    ends = np.concatenate([[0], np.cumsum(events.gap[:n]), [events.gap[:n].sum() + events.rest]])
    node, weight = np.polynomial.legendre.leggauss(60)
    u = (node + 1) / 2
    place = ends[:-1, None] + np.diff(ends)[:, None] * u**4  # close to the event before, where a renewal is steep
    density = np.asarray(jax.jit(process.intensity)(events, np.concatenate([place.ravel(), ends[1:-1]])))
    integral = (density[: place.size].reshape(place.shape) * weight / 2 * 4 * u**3).sum(-1) * np.diff(ends)
    found = jax.device_get(jax.jit(process.log_likelihood)(events))
    np.testing.assert_allclose(found.time[:n], np.log(density[place.size :]) - integral[:-1], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.rest, -integral[-1], rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(jax.jit(process.compensator)(events)[:n], integral[:-1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", KINDS)
def test_absent_events_are_as_if_they_were_not(name):
    process, whole = KINDS[name], jax.tree.map(lambda leaf: leaf[0], sampled(name))
    n = int(number(whole))
    short = Events(whole.gap[:n], whole.mark[:n], None, whole.rest)
    long = padded(whole, 40)
    odd = long._replace(gap=jnp.where(long.mask, long.gap, jnp.nan), mark=jnp.where(long.mask, long.mark, 99))
    time = jnp.linspace(0, ENDS["horizon"], 7)
    every = jax.jit(lambda of: (process.log_likelihood(of), process.compensator(of), process.intensity(of, time)))
    (found, compensator, intensity), wanted = every(odd), every(short)
    for ours, theirs in ((found.time, wanted[0].time), (found.mark, wanted[0].mark), (compensator, wanted[1])):
        np.testing.assert_allclose(ours[:n], theirs, rtol=1e-5, atol=1e-6)
        assert not ours[n:].any()
    np.testing.assert_allclose([found.rest, found.total], [wanted[0].rest, wanted[0].total], rtol=1e-5)
    np.testing.assert_allclose(intensity, wanted[2], rtol=1e-5)


def test_a_hawkes_process_has_as_many_events_as_it_should():
    """E N(T) = mu T / (1 - a) - mu a (1 - exp(-b (1 - a) T)) / (b (1 - a)^2): nothing excites it at the start."""
    mu, a, b, end = 0.5, 0.6, 2.0, 8.0
    process = Hawkes(max_events=64, horizon=end, base=(mu,), branching=(((a,),),), decay=(b,))
    events = jax.jit(jax.vmap(process.sample))(jax.random.split(jax.random.key(2), 1000))
    found = np.asarray(number(events))
    assert found.max() < 64
    expected = mu * end / (1 - a) - mu * a * (1 - np.exp(-b * (1 - a) * end)) / (b * (1 - a) ** 2)
    assert abs(found.mean() - expected) < 3 * found.std() / np.sqrt(len(found))


@pytest.mark.parametrize("name", ["self_correcting", "hawkes"])
def test_long_sequences_keep_the_likelihood_in_float32(name):
    """Of processes with a memory: all residuals of sequences that end by number, and the same numbers in float64."""
    process = dataclasses.replace(KINDS[name], max_events=1024, horizon=1e6)
    told = lambda events: (process.log_likelihood(events), process.compensator(events))
    events = jax.jit(jax.vmap(process.sample))(jax.random.split(jax.random.key(3), 32))
    assert events.mask.all() and not events.rest.any()
    single, compensator = jax.device_get(jax.jit(jax.vmap(told))(events))
    assert scipy.stats.kstest(compensator.ravel(), "expon").pvalue > 0.01
    with jax.enable_x64(True):
        exact = events._replace(gap=np.asarray(events.gap, float), rest=np.zeros(32))
        double, _ = jax.device_get(jax.jit(jax.vmap(told))(exact))
    np.testing.assert_allclose(single.time, double.time, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(single.total, double.total, atol=0.02)


def test_no_gap_is_zero():
    """Of as many draws as there are numbers in float32 steps, about."""
    drawn = np.asarray(exponential(jax.random.key(0), (2**21,)))
    assert drawn.min() > 0 and drawn.max() < 17 and abs(drawn.mean() - 1) < 3 / 2**10.5


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("poisson", dict(rate=0.0), "config.task.rate: expected float, above 0"),
        ("poisson", dict(max_events=0), "config.task.max_events: expected int, at least 1"),
        ("renewal", dict(std=-1.0), "config.task.std"),
        ("self_correcting", dict(horizon=0), "config.task.horizon"),
        ("hawkes", dict(base=[0.2, 0.2]), "config.task: branching is no 2 x 2 x 2 numbers"),
        ("hawkes", dict(base=[0.0]), "config.task: every base rate is 0"),
        (
            "hawkes",
            dict(branching=[[[0.8]], [[0.2]]]),
            "config.task: the spectral radius of branching is 1, not below 1",
        ),
        ("hawkes", dict(branching=[[[-0.1]], [[0.2]]]), "config.task.branching: .*at least 0"),
        ("hawkes", dict(decay=[1.0]), "config.task: branching is no 1 x 1 x 1 numbers"),
        ("hawkes", dict(decay=[]), "config.task: branching is no 0 x 1 x 1 numbers"),
    ],
)
def test_impossible_processes_are_one_line(name, change, message):
    section = dataclasses.asdict(KINDS[name]) | change
    with pytest.raises(ConfigError, match=message):
        build(PROCESSES[name], section, "config.task")
