"""What holds of every event process: absence, causality, one likelihood however it is computed, served, or saved."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import kvq_jax
from kvq_jax.models import EVENT_MODELS, Events
from kvq_jax.models.event_processes.heads import MixtureHead
from tests.kvq_jax.models.event_processes.drawing import LENGTH, MARKS, THERE, drawn, events, narrow, second
from tests.kvq_jax.nn.drawing import draw, start

GAPS = (0.05, 0.8, 6.0)


def told(forecast):
    """What a forecast says at a few gaps, as one array [..., numbers]."""
    times = [getattr(forecast.time, name)(gap) for gap in GAPS for name in ("log_prob", "log_survival")]
    return jnp.concatenate([jnp.stack(times, -1), forecast.mark_logits(jnp.asarray(GAPS[1]))], -1)


@pytest.fixture(scope="module")
def judged():
    """Of a model's name: a model of one layer, its variables, and a program of what one pass over sequences says."""

    @functools.cache
    def of(name):
        model = narrow(name)
        model = model.clone(num_layers=1) if hasattr(model, "num_layers") else model

        def run(variables, events):
            forecast, gaps = model.apply(variables, events), jnp.concatenate([events.gap, events.rest[..., None]], -1)
            survival = forecast.time.log_survival(events.rest[..., None])
            terms = forecast.time.log_prob(gaps), forecast.mark_logits(gaps), survival
            return model.apply(variables, events, method="log_likelihood"), told(forecast), terms

        return model, drawn(model, jnp.float64), jax.jit(run)

    return of


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_an_absent_event_is_no_event(x64, judged, name):
    """The second sequence in a batch, behind which stands NaN, is that sequence alone, and no gradient sees the NaN.

    The loss is minus the sum of all parts by the number of events there are.
    """
    model, variables, run = judged(name)
    whole = events(jnp.float64, absent=np.nan)
    parts, _, _ = run(variables, whole)
    alone = jax.jit(lambda v, e: model.apply(v, e, method="log_likelihood"))(variables, second(whole))
    np.testing.assert_allclose(parts.total[1], alone.total, rtol=1e-12)
    np.testing.assert_allclose(parts.time[1, :THERE], alone.time, rtol=1e-11)
    np.testing.assert_allclose(parts.mark[1, :THERE], alone.mark, rtol=1e-11)
    assert (parts.time[1, THERE:] == 0).all() and (parts.mark[1, THERE:] == 0).all() and (parts.time[0] != 0).all()
    np.testing.assert_allclose(parts.rest[1], alone.rest, rtol=1e-11)

    slope = jax.jit(jax.value_and_grad(lambda v, e: model.apply(v, e, method="loss")))
    (loss, gradient), (_, gradient_other) = slope(variables, whole), slope(variables, events(jnp.float64, absent=3.0))
    np.testing.assert_allclose(loss, -parts.total.sum() / (LENGTH + THERE), rtol=1e-12)
    jax.tree.map(np.testing.assert_array_equal, gradient, gradient_other)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(gradient))  # everything is used


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_no_forecast_knows_what_comes_after_it(x64, judged, name):
    _, variables, run = judged(name)
    whole, changed = events(jnp.float64), 3
    other = whole._replace(gap=whole.gap.at[:, changed].mul(1.7), mark=(whole.mark.at[:, changed].add(1)) % MARKS)
    (parts, said, _), (parts_other, said_other, _) = run(variables, whole), run(variables, other)
    np.testing.assert_array_equal(said[:, : changed + 1], said_other[:, : changed + 1])
    assert (np.abs(said - said_other)[0, changed + 1 :].max(-1) > 1e-6).all()  # and all after it know
    np.testing.assert_array_equal(parts.time[:, :changed], parts_other.time[:, :changed])


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_the_likelihood_is_what_forecasts_say(x64, judged, name):
    """log p(gap) + log p(mark | gap), and nothing in the rest."""
    _, variables, run = judged(name)
    whole = events(jnp.float64)
    parts, _, (time, marks, rest) = run(variables, whole)
    np.testing.assert_allclose(parts.time[0], time[0, :LENGTH], rtol=1e-10)
    np.testing.assert_allclose(parts.mark[0], marks[0, jnp.arange(LENGTH), whole.mark[0]], rtol=1e-10)
    np.testing.assert_allclose(parts.rest, [rest[0, LENGTH], rest[1, THERE]], rtol=1e-10)
    np.testing.assert_allclose(np.exp(marks).sum(-1), 1, rtol=1e-12)


def by_event(model):
    """(variables, events) -> what a state says after each event, from none on, and the last state."""

    def run(variables, events):
        def step(state, event):
            state = model.apply(variables, state, *event, method="update")
            return state, state

        empty = model.apply(variables, (2,), method="init_state")
        last, after = jax.lax.scan(step, empty, tuple(jnp.moveaxis(array, -1, 0) for array in events[:3]))
        states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), empty, after)
        return jax.vmap(lambda state: told(model.apply(variables, state, method="predict")), out_axes=1)(states), last

    return run


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_one_pass_is_event_by_event_is_chunks(x64, judged, name):
    """To 1e-12, as is the state after a chunk and a chunk; an absent event changes nothing."""
    model, variables, run = judged(name)
    of = events(jnp.float64)
    _, whole, _ = run(variables, of)
    each, state = jax.jit(by_event(model))(variables, of)
    same = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    same(whole[0], each[0])
    same(whole[1, : THERE + 1], each[1, : THERE + 1])
    same(each[1, THERE + 1 :], each[1, [THERE] * (LENGTH - THERE)])

    @jax.jit
    def in_chunks(variables, events):
        state = model.apply(variables, (2,), method="init_state")
        for part in (slice(0, 3), slice(3, LENGTH)):
            chunk = Events(*(array[:, part] for array in events[:3]), events.rest)
            state = model.apply(variables, state, chunk, method="update_many")
        return state

    jax.tree.map(same, in_chunks(variables, of), state)
    if name == "intention_hawkes":  # in training; the chunks of CMHP, with a state that ages
        chunked = jax.jit(lambda v, e: told(model.clone(chunk=3).apply(v, e)))(variables, of)
        same(chunked[0], whole[0])
        same(chunked[1, : THERE + 1], whole[1, : THERE + 1])


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_layers_above_one_another_in_float32(name):
    model, of = narrow(name), events()
    run = jax.jit(lambda variables, events: (told(model.apply(variables, events)), by_event(model)(variables, events)))
    whole, (each, _) = run(drawn(model), of)
    assert whole.dtype == each.dtype == jnp.float32
    np.testing.assert_allclose(whole[0], each[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(whole[1, : THERE + 1], each[1, : THERE + 1], rtol=1e-5, atol=1e-5)


def test_a_mixture_of_log_gaps_by_hand():
    """log gap = log_mean + log_std x, and x is a mixture of normals."""
    head, hidden = MixtureHead(MARKS, components=2, log_mean=0.3, log_std=1.2), draw(5, 4)
    variables = start(head, hidden, np.zeros(5))
    linear = variables["params"]["mixture"]
    loc, log_scale, weight = np.split(hidden @ linear["kernel"] + linear["bias"], 3, -1)
    law = head.apply(variables, hidden, np.zeros(5)).time
    np.testing.assert_allclose(law.loc, 0.3 + 1.2 * loc, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(law.scale, 1.2 * np.exp(log_scale), rtol=1e-4)
    np.testing.assert_allclose(np.exp(law.log_weight), special.softmax(weight, -1), rtol=1e-4)


@pytest.mark.parametrize("name", ["gru", "thp"])
def test_simulated_gaps_have_the_laws_of_their_predictions(name):
    """By Kolmogorov and Smirnov, given that they come; marks at their frequencies; absent is all after the end."""
    model, batch = narrow(name), 3000
    variables = drawn(model)

    @jax.jit
    def run(variables):
        options = {} if name == "gru" else dict(capacity=2)
        state = model.apply(variables, (batch,), **options, method="init_state")
        future = model.apply(variables, state, jax.random.key(1), 2, method="simulate")
        after = model.apply(variables, state, *(array[:, 0] for array in future[:3]), method="update")
        states = jax.tree.map(lambda *leaves: jnp.stack(leaves), state, after)
        law = model.apply(variables, states, method="predict").time
        marks = model.apply(variables, state, method="next_mark")
        return future, law.cdf(future.gap.T) / (1 - law.never), law.never[0], jnp.exp(marks[0])

    future, levels, never, marks = jax.device_get(run(variables))
    there = future.mask[:, 0]
    assert abs((~there).mean() - never[0]) < 4 * np.sqrt(0.25 / batch)
    for own, came in zip(levels, future.mask.T):
        assert stats.kstest(own[came], "uniform").pvalue > 1e-3
    counts = np.bincount(future.mark[there, 0], minlength=MARKS)
    assert stats.chisquare(counts, counts.sum() * (marks / marks.sum(dtype=float))).pvalue > 1e-3
    assert np.isfinite(future.gap).all() and not future.mask[~there].any() and (future.rest == 0).all()


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_a_saved_model_is_the_same_model(name, tmp_path):
    model = narrow(name)
    variables = drawn(model)
    kvq_jax.save(tmp_path, model, variables)
    loaded = kvq_jax.load(tmp_path)
    assert loaded.model == model
    jax.tree.map(np.testing.assert_array_equal, loaded.variables, variables)


REFUSED = [
    (lambda e: tuple(e), "events is a tuple: expected kvq_jax.models.Events(gap, mark, mask, rest)"),
    (lambda e: [e.gap, e.mark], "events is a list: expected kvq_jax.models.Events"),
    (lambda e: e._replace(gap=e.gap.tolist()), "events.gap is a list: expected an array of real numbers"),
    (lambda e: e._replace(gap=e.mark), "events.gap is int32: expected an array of real numbers"),
    (lambda e: e._replace(mark=e.gap), "events.mark is float32: expected an array of integers"),
    (lambda e: e._replace(mask=e.gap), "events.mask is float32: expected an array of booleans (True = there)"),
    (lambda e: e._replace(mark=e.mark[:, 1:]), "events.gap and events.mark and events.mask differ in shape"),
    (lambda e: e._replace(mask=e.mask[:1]), "events.gap and events.mark and events.mask differ in shape"),
    (lambda e: e._replace(rest=None), "events.rest is a NoneType: expected an array of real numbers"),
    (lambda e: e._replace(rest=e.rest[:1]), "events.rest (1,) is not events.gap (2, 7) without its last dimension"),
    (lambda e: e._replace(rest=e.gap), "events.rest (2, 7) is not events.gap (2, 7) without its last dimension"),
    (lambda e: Events(e.gap[0, 0], e.mark[0, 0], None, e.rest[0]), "events.gap has shape (): expected [..., events]"),
    (lambda e: Events(e.gap[:, :0], e.mark[:, :0], None, e.rest), "events.gap has shape (2, 0): expected"),
]


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_events_that_do_not_fit_are_one_line(name):
    model = narrow(name)
    for spoil, message in REFUSED:
        spoilt = spoil(events())
        for method in ("__call__", "loss", "log_likelihood"):
            with pytest.raises(ValueError) as raised:
                jax.eval_shape(lambda: model.init(jax.random.key(0), spoilt, method=method))  # noqa: B023
            assert str(raised.value).startswith(message) and "\n" not in str(raised.value)
    gap, mark, mask, _ = events()
    for event, message in [
        ((gap[:, 0], gap[:, 0]), "mark is float32: expected an array of integers"),
        ((gap[:, 0], mark[0]), "gap and mark differ in shape: gap (2,), mark (7,)"),
        ((gap[:, 0], mark[:, 0], mask), "gap and mark and mask differ in shape"),
    ]:
        with pytest.raises(ValueError) as raised:
            jax.eval_shape(lambda: model.init(jax.random.key(0), None, *event, method="update"))  # noqa: B023
        assert str(raised.value).startswith(message)
