"""What holds of every event process: absence, causality, one likelihood however it is computed, served, or saved."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import kvq_jax
from kvq_jax.models import EVENT_MODELS, Events
from tests.kvq_jax.models.event_processes.drawing import LENGTH, MARKS, THERE, drawn, events, narrow, second

SINGLE, DOUBLE = (jnp.float32, 1e-5), (jnp.float64, 1e-12)
GAPS = (0.05, 0.8, 6.0)


def told(forecast):
    """What a forecast says at a few gaps, as one array [..., numbers]."""
    times = [getattr(forecast.time, name)(gap) for gap in GAPS for name in ("log_prob", "log_survival")]
    return jnp.concatenate([jnp.stack(times, -1), forecast.mark_logits(jnp.asarray(GAPS[1]))], -1)


def judge(model, variables, events):
    """Everything that one pass over a sequence says; the forecasts' own terms of its likelihood are `terms`."""
    parts = model.apply(variables, events, method="log_likelihood")
    forecast = model.apply(variables, events)
    gaps = jnp.concatenate([events.gap, events.rest[..., None]], -1)
    terms = forecast.time.log_prob(gaps), forecast.mark_logits(gaps), forecast.time.log_survival(events.rest[..., None])
    return parts, told(forecast), model.apply(variables, events, method="loss"), terms


@pytest.fixture(scope="module")
def judged():
    """Of a model's name: its variables, and `judge` with the gradient of log p of the second sequence."""

    @functools.cache
    def of(name):
        model = narrow(name)
        model = model.clone(num_layers=1) if hasattr(model, "num_layers") else model

        def run(variables, events):
            found = judge(model, variables, events)
            return found[0].total[1], found

        program = jax.jit(jax.value_and_grad(run, has_aux=True))
        return drawn(model, jnp.float64), program, jax.jit(functools.partial(judge, model))

    return of


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_an_absent_event_is_no_event(x64, judged, name):
    """The second sequence in a batch, behind which stands NaN, is that sequence alone; no gradient sees the NaN."""
    variables, run, run_alone = judged(name)
    whole = events(jnp.float64, absent=np.nan)
    (total, (parts, said, loss, _)), gradient = run(variables, whole)
    alone, said_alone, loss_alone, _ = run_alone(variables, second(whole))
    np.testing.assert_allclose(parts.total[1], alone.total, rtol=1e-12)
    np.testing.assert_allclose(parts.time[1, :THERE], alone.time, rtol=1e-11)
    np.testing.assert_allclose(parts.mark[1, :THERE], alone.mark, rtol=1e-11)
    assert (parts.time[1, THERE:] == 0).all() and (parts.mark[1, THERE:] == 0).all() and (parts.time[0] != 0).all()
    np.testing.assert_allclose(parts.rest[1], alone.rest, rtol=1e-11)
    np.testing.assert_allclose(said[1, : THERE + 1], said_alone, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(loss, -parts.total.sum() / (LENGTH + THERE), rtol=1e-12)
    np.testing.assert_allclose(loss_alone, -total / THERE, rtol=1e-12)
    _, gradient_other = run(variables, events(jnp.float64, absent=3.0))
    jax.tree.map(np.testing.assert_array_equal, gradient, gradient_other)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(gradient))  # everything is used


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_no_forecast_knows_what_comes_after_it(x64, judged, name):
    variables, run, _ = judged(name)
    whole, changed = events(jnp.float64), 3
    other = whole._replace(gap=whole.gap.at[:, changed].mul(1.7), mark=(whole.mark.at[:, changed].add(1)) % MARKS)
    (_, (parts, said, *_)), _ = run(variables, whole)
    (_, (parts_other, said_other, *_)), _ = run(variables, other)
    np.testing.assert_array_equal(said[:, : changed + 1], said_other[:, : changed + 1])
    assert (np.abs(said - said_other)[0, changed + 1 :].max(-1) > 1e-6).all()  # and all after it know
    np.testing.assert_array_equal(parts.time[:, :changed], parts_other.time[:, :changed])


@pytest.mark.parametrize("name", EVENT_MODELS)
def test_the_likelihood_is_what_forecasts_say(x64, judged, name):
    """log p(gap) + log p(mark | gap), and nothing in the rest."""
    variables, run, _ = judged(name)
    whole = events(jnp.float64)
    (_, (parts, _, _, (time, marks, rest))), _ = run(variables, whole)
    np.testing.assert_allclose(parts.time[0], time[0, :LENGTH], rtol=1e-10)
    np.testing.assert_allclose(parts.mark[0], marks[0, jnp.arange(LENGTH), whole.mark[0]], rtol=1e-10)
    np.testing.assert_allclose(parts.rest, [rest[0, LENGTH], rest[1, THERE]], rtol=1e-10)
    np.testing.assert_allclose(np.exp(marks).sum(-1), 1, rtol=1e-12)


@pytest.mark.parametrize("dtype, tolerance", [SINGLE, DOUBLE], ids=["float32", "float64"])
@pytest.mark.parametrize("name", EVENT_MODELS)
def test_one_pass_is_event_by_event_is_chunks(name, dtype, tolerance):
    with jax.enable_x64(dtype == jnp.float64):
        model = narrow(name)
        variants = [model] + ([model.clone(chunk=3)] if hasattr(model, "chunk") else [])

        @jax.jit
        def served(variables, events):
            apply = functools.partial(model.apply, variables)

            def step(state, event):
                state = apply(state, *event, method="update")
                return state, told(apply(state, method="predict"))

            state = apply((2,), method="init_state")
            start = told(apply(state, method="predict"))
            rows = tuple(jnp.moveaxis(array, -1, 0) for array in events[:3])
            _, each = jax.lax.scan(step, state, rows)
            for part in (slice(0, 3), slice(3, LENGTH)):
                chunk = Events(*(array[:, part] for array in events[:3]), events.rest)
                state = apply(state, chunk, method="update_many")
            passes = [told(variant.apply(variables, events)) for variant in variants]
            each = jnp.concatenate([start[:, None], jnp.moveaxis(each, 0, 1)], 1)
            return passes, each, told(apply(state, method="predict"))

        passes, each, chunks = served(drawn(model, dtype), events(dtype))
        assert each.dtype == dtype
        for whole in passes:
            np.testing.assert_allclose(whole[0], each[0], rtol=tolerance, atol=tolerance)
            np.testing.assert_allclose(whole[1, : THERE + 1], each[1, : THERE + 1], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(each[1, THERE + 1 :], each[1, [THERE] * (LENGTH - THERE)], rtol=tolerance)
        np.testing.assert_allclose(chunks, each[:, -1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["gru", "thp"])
def test_the_first_simulated_gap_has_the_law_of_the_prediction(name):
    """By Kolmogorov and Smirnov, given that it comes; marks at their frequencies; absent is all after the end."""
    model, batch = narrow(name), 3000
    variables = drawn(model)

    @jax.jit
    def run(variables):
        options = {} if name == "gru" else dict(capacity=2)
        state = model.apply(variables, (batch,), **options, method="init_state")
        future = model.apply(variables, state, jax.random.key(1), 2, method="simulate")
        forecast = model.apply(variables, state, method="predict")
        marks = model.apply(variables, state, method="next_mark")
        return future, forecast.time.cdf(future.gap[:, 0]), forecast.time.never, jnp.exp(marks[0])

    future, levels, never, marks = map(jax.tree.map, [np.asarray] * 4, run(variables))
    there = future.mask[:, 0]
    assert abs((~there).mean() - never[0]) < 4 * np.sqrt(0.25 / batch)
    assert stats.kstest(levels[there] / (1 - never[0]), "uniform").pvalue > 1e-3
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
                model.apply({}, spoilt, method=method)
            assert str(raised.value).startswith(message) and "\n" not in str(raised.value)
    gap, mark, mask, _ = events()
    for event, message in [
        ((gap[:, 0], gap[:, 0]), "mark is float32: expected an array of integers"),
        ((gap[:, 0], mark[0]), "gap and mark differ in shape: gap (2,), mark (7,)"),
        ((gap[:, 0], mark[:, 0], mask), "gap and mark and mask differ in shape"),
    ]:
        with pytest.raises(ValueError) as raised:
            model.apply({}, None, *event, method="update")
        assert str(raised.value).startswith(message)
