"""Transformer Hawkes Process: its intensities against hand and one another, its cache, its dropout, its operators."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import EVENT_MODELS, Events
from kvq_jax.models.event_processes.heads import IntensityHead
from tests.kvq_jax.models.event_processes.drawing import DATA, MARKS, NARROW, drawn, events, narrow
from tests.kvq_jax.nn.drawing import draw, start

KEY = jax.random.key(0)


def test_a_constant_intensity_has_the_likelihood_of_a_poisson_process():
    """softplus(b_k) / time_scale is the rate r_k of mark k: sum of log r_k over events, minus sum r_k times time."""
    model = narrow("thp")
    head = drawn(model)["params"]["head"]
    zero = jax.tree.map(jnp.zeros_like, head)
    bias = np.array([-0.5, 0.2, 1.0], np.float32)
    beta = jnp.full(MARKS, math.log(math.e - 1))  # softplus(it) = 1
    constant = zero | {"intensity": zero["intensity"] | {"bias": bias}, "beta": beta}
    variables = {"params": drawn(model)["params"] | {"head": constant}}
    of = events()
    parts = jax.jit(lambda variables: model.apply(variables, of, method="log_likelihood"))(variables)
    rates = np.log1p(np.exp(bias)) / DATA["time_scale"]
    gaps, marks, there = (np.asarray(x, dtype) for x, dtype in zip(of[:3], (float, int, bool)))
    observed = np.where(there, gaps, 0).sum(-1) + np.asarray(of.rest)
    expected = np.where(there, np.log(rates)[marks], 0).sum(-1) - rates.sum() * observed
    np.testing.assert_allclose(parts.total, expected, rtol=1e-5)
    np.testing.assert_allclose(parts.rest, -rates.sum() * of.rest, rtol=1e-5)


def test_intensities_by_hand():
    """softplus_k(w_k h + b_k + alpha_k (t - t_j) / (t_j + 1)) with softplus_k(x) = beta_k log(1 + exp(x / beta_k))."""
    head, hidden, elapsed = IntensityHead(MARKS, time_scale=2.0, by_mark=True), draw(2, 4), np.array([0.0, 3.0])
    variables = start(head, hidden, elapsed)
    params = variables["params"]
    beta = np.log1p(np.exp(params["beta"]))
    line = hidden @ params["intensity"]["kernel"] + params["intensity"]["bias"]
    line += params["alpha"] * 2.5 / (elapsed[:, None] + 1)
    found = head.apply(variables, hidden, elapsed).time.log_intensities(2 * 2.5)
    np.testing.assert_allclose(np.exp(found), beta * np.log1p(np.exp(line / beta)) / 2, rtol=1e-4)


@pytest.mark.parametrize("by_mark", [True, False], ids=["by mark", "ground"])
def test_the_compensators_agree(by_mark):
    """The trapezoid rule within its error, Monte Carlo within its standard error; and the density's own is exact."""
    model = narrow("thp", by_mark=by_mark)
    variables, of = drawn(model), events()
    clones = {
        "exact": model,
        "trapezoid": model.clone(compensator="trapezoid", points=200),
        "monte_carlo": model.clone(compensator="monte_carlo", points=4000),
    }
    run = jax.jit(lambda v: {n: m.apply(v, of, KEY, method="log_likelihood") for n, m in clones.items()})
    found = run(variables)
    for exact, trapezoid, sampled in zip(found["exact"], found["trapezoid"], found["monte_carlo"]):
        np.testing.assert_allclose(trapezoid, exact, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(sampled, exact, rtol=0.03, atol=0.03)
    assert not np.array_equal(found["monte_carlo"].time, found["exact"].time)
    assert "mark" in variables["params"]["head"] or by_mark


def test_a_full_cache_forgets_the_oldest():
    """One layer: with room for two events a state is that of the start and the last two, however many there were."""
    model, wide = narrow("thp_mixture").clone(num_layers=1), events()
    variables = drawn(model)

    @jax.jit
    def states(variables, events):
        start = model.apply(variables, (2,), capacity=2, method="init_state")
        return model.apply(variables, start, events, method="update_many")

    @jax.jit
    def alone(variables, events, elapsed):
        start = model.apply(variables, (2,), capacity=9, method="init_state")
        return model.apply(variables, start._replace(elapsed=elapsed), events, method="update_many")

    whole = Events(wide.gap.at[1, 5:].set(1.0), wide.mark, None, wide.rest)
    last = Events(whole.gap[:, -2:], whole.mark[:, -2:], None, wide.rest)
    full, before = states(variables, whole), whole.gap[:, :-2].sum(-1) / DATA["time_scale"]
    np.testing.assert_allclose(full.hidden, alone(variables, last, before).hidden, rtol=1e-4, atol=1e-5)
    assert jax.tree.leaves(full.cache)[0].shape == (2, 3, 8)


def test_training_drops_and_evaluation_does_not():
    model, of = narrow("thp_mixture", dropout=0.5), events()
    variables = drawn(model)
    run = jax.jit(lambda v, key: (model.apply(v, of, key, method="loss"), model.apply(v, of, method="loss")))
    (one, still), (other, same) = run(variables, KEY), run(variables, jax.random.key(1))
    assert one != other and still == same and one != still


def test_any_operator_mixes_the_events():
    """By Intention and linear attention too: another model, causal as with softmax."""
    of = events()
    changed = of._replace(gap=of.gap.at[:, 4].mul(2.0))
    for op in (dict(name="intention", alpha=0.1, alpha_kind="softplus"), "linear"):
        model = narrow("thp_mixture", op=op).clone(num_layers=1)
        variables = drawn(model)
        run = jax.jit(lambda v, e: model.apply(v, e).time.log_prob(1.0))  # noqa: B023
        one, other = run(variables, of), run(variables, changed)
        np.testing.assert_allclose(one[:, :5], other[:, :5], rtol=1e-5)
        assert (np.abs(one - other)[:, 5] > 1e-5).all()


def test_refusals():
    def refused(message, *arguments, method="__call__", **fields):
        model = narrow("thp", **fields)
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(lambda: model.init_with_output(KEY, *arguments, method=method))

    refused("unknown compensator 'simpson'", events(), compensator="simpson")
    refused("draws random numbers: give a key", events(), method="log_likelihood", compensator="monte_carlo")
    refused("takes 2 points at least, not 1", events(), method="loss", compensator="trapezoid", points=1)
    refused("room for 1 event at least, not 0", (), 0, method="init_state")


def test_default_sizes_are_those_of_the_released_code():
    """Four post-norm layers of width 64 with four heads of 16, inner width 128; ours has biases of projections."""
    of, model = events(), EVENT_MODELS["thp"].cls(num_marks=MARKS)
    shapes = jax.eval_shape(lambda: model.init(KEY, of))["params"]
    layer = 4 * (64 * 64 + 64) + 2 * 2 * 64 + (64 * 128 + 128) + (128 * 64 + 64)
    assert sum(x.size for x in jax.tree.leaves(shapes["encoder"])) == 4 * layer
    assert shapes["embed"]["mark"]["embedding"].shape == (MARKS, 64) and NARROW["num_layers"] == 2
