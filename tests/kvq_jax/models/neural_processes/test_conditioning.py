"""Conditioning in parts and in constant memory, and sampling block by block."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvq_jax.models import family
from kvq_jax.models.neural_processes import conditioning
from kvq_jax.models.neural_processes.conditional import CANP
from kvq_jax.models.neural_processes.conditioning import (
    as_stream,
    condition,
    condition_made,
    has_cache,
    has_state,
    in_blocks,
    sample,
)
from kvq_jax.models.points import Points
from kvq_jax.ops import streaming
from tests.kvq_jax.models.neural_processes import cnp_family
from tests.kvq_jax.models.neural_processes.perceivers import MODELS, points, variables_of

N, M, PART = 7, 4, 3
STATES = ("cmanp", "intention", "cmanpand")


def close(one, other, tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


def moments(prediction):
    return prediction.mean, prediction.variance


@functools.cache
def programs(name):
    """init_state, update (with places for PART points), merge, query and the whole, each compiled once, in float64."""
    model = MODELS[name]
    variables = jax.tree.map(np.float64, variables_of(name))
    target_x = np.float64(points(M, seed=5).x)
    method = lambda method: jax.jit(functools.partial(model.apply, variables, method=method))
    return (
        jax.jit(lambda: model.apply(variables, (), method="init_state"))(),
        method("update"),
        method("merge"),
        jax.jit(lambda state: moments(as_stream(model, variables).read(state, target_x))),
        jax.jit(lambda context: moments(model.apply(variables, context, target_x))),
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(STATES[:2]),
    seed=st.integers(0, 2**16),
    keep=st.lists(st.booleans(), min_size=N, max_size=N),
    cuts=st.lists(st.integers(1, PART), min_size=N, max_size=N),
    sides=st.lists(st.booleans(), min_size=N, max_size=N),
)
def test_any_parts_in_any_order_and_merged(name, seed, keep, cuts, sides):
    """Parts of one to three points, in any order, go to one of two states, which are merged: the whole, to 1e-12."""
    with jax.enable_x64(True):
        empty, update, merge, query, whole = programs(name)
        rng, context = np.random.default_rng(seed), jax.tree.map(np.float64, points(N, seed=seed))
        context = context._replace(mask=np.asarray(keep))
        order, states = rng.permutation(N), {True: empty, False: empty}
        for cut, side in zip(cuts, sides):
            part, order = order[:cut], order[cut:]
            filled = np.resize(part, PART) if len(part) else np.zeros(PART, int)
            rows = Points(*(array[filled] for array in context))
            states[side] = update(states[side], rows._replace(mask=rows.mask & (np.arange(PART) < len(part))))
        assert len(order) == 0
        close(query(merge(states[True], states[False])), whole(context), 1e-12)


@pytest.mark.parametrize("name", ["cmanp", "intention"])
def test_a_long_context_in_chunks(name):
    """float32, a batch, a last chunk that is shorter; a state to start from."""
    model, variables, rng = MODELS[name], variables_of(name), np.random.default_rng(0)
    context, target_x = points(N, 2, mask=rng.random((2, N)) < 0.7), points(M, 2, seed=5).x
    more = points(2, 2, seed=8, mask=np.ones((2, 2), bool))

    @jax.jit
    def in_chunks(variables, context):
        state = condition(model, variables, more, 1, state=condition(model, variables, context, 3))
        return moments(as_stream(model, variables).read(state, target_x))

    full = jax.jit(lambda *points: moments(model.apply(variables, Points(*points), target_x)))
    both = jax.tree.map(lambda a, b: np.concatenate([a, b], 1), context, more)
    close(in_chunks(variables, context), full(*both), 1e-5)


def test_gradient_through_chunks():
    model, variables, context, target = MODELS["cmanp"], variables_of("cmanp"), points(N), points(M, seed=5)

    def loss(variables, in_chunks):
        if in_chunks:
            prediction = as_stream(model, variables).read(condition(model, variables, context, 3), target.x)
        else:
            prediction = model.apply(variables, context, target.x)
        return prediction.log_prob(target.y).sum()

    gradient = jax.jit(jax.grad(loss), static_argnums=1)
    close(gradient(variables, True), gradient(variables, False), 1e-4)


def made(i):
    """Chunk i of an endless context: 100 points."""
    x = (100 * (i % 10_000) + jnp.arange(100.0))[:, None] / 1e6
    return Points(x, jnp.concatenate([jnp.sin(40 * x), jnp.cos(9 * x)], -1))


@pytest.mark.parametrize("name", ["cmanp", "intention"])
def test_memory_does_not_depend_on_the_number_of_points(x64, name):
    """float64: with a thousand points and a ridge of 0.5, Intention's systems amplify rounding some thousand times."""
    model, variables = MODELS[name], jax.tree.map(np.float64, variables_of(name))
    target_x = np.float64(points(M, seed=5).x)

    def run(variables, count):
        state = condition_made(model, variables, made, count)
        return moments(as_stream(model, variables).read(state, target_x))

    @jax.jit
    def whole(variables):
        shown = jax.tree.map(lambda x: x.reshape(1000, -1), jax.vmap(made)(jnp.arange(10)))
        return moments(model.apply(variables, shown, target_x))

    compiled = {count: jax.jit(run, static_argnums=1).lower(variables, count).compile() for count in (10, 10_000)}
    few, many = (program.memory_analysis().temp_size_in_bytes for program in compiled.values())
    assert few > 0 and abs(many - few) <= 0.05 * few
    close(compiled[10](variables), whole(variables), 1e-11)


def test_a_model_is_a_stream():
    """What can be done with streams can be done with it: here, the states after each point of the context."""
    model, variables, context, target_x = MODELS["cmanp"], variables_of("cmanp"), points(3), points(M, seed=5).x
    stream = as_stream(model, variables)

    @jax.jit
    def after_each_point():
        states = streaming.prefixes(stream, stream.init(1, 2), context.x, context.y)
        return jax.vmap(lambda state: moments(stream.read(state, target_x)))(states)

    every = after_each_point()
    close(
        jax.tree.map(lambda a: a[-1], every),
        jax.jit(lambda: moments(model.apply(variables, context, target_x)))(),
        1e-5,
    )


def test_which_models_have_a_state():
    assert {name for name in MODELS if has_state(MODELS[name])} == set(STATES)
    assert not has_state(MODELS["cmanp"].clone(cross_op="sigma_intention"))


def test_which_models_have_a_cache():
    names = {name for name, row in family("neural_process").items() if has_cache(row.cls(dim_y=1))}
    assert names == {"cnp", "canp", "np", "anp", "intention_anp"}


def test_keys_that_are_x_itself_have_no_state():
    """Nothing tells their width before the first point."""
    fields = dict(dim_y=2, hidden=4, self_attention=False, num_heads=0, key_depth=0)
    model = CANP(**fields, op=dict(name="intention", alpha=0.1))
    assert not has_state(model)
    assert has_state(model.clone(key_depth=1))


def test_blocks_hold_every_point_once():
    context = points(5, 2, mask=np.arange(10).reshape(2, 5) % 3 > 0)
    blocks = in_blocks(context, 2)
    assert blocks.x.shape == (3, 2, 2, 1) and blocks.mask.shape == (3, 2, 2)
    for rows, split in zip(context[:2], blocks[:2]):
        np.testing.assert_array_equal(np.concatenate(split, 1)[:, :5], rows)
    np.testing.assert_array_equal(np.concatenate(blocks.mask, 1), np.pad(context.mask, ((0, 0), (0, 1))))
    assert in_blocks(points(4), 100).x.shape == (1, 4, 1) and in_blocks(points(4), 100).mask.all()


def draws(model, variables, context, target, **options):
    """Compiled samples."""
    options = {"key": jax.random.key(1), "block_size": 2, "num_samples": 3} | options
    return jax.jit(lambda v, c, x, m: sample(model, v, c, x, m, **options))(variables, context, target.x, target.mask)


@pytest.mark.parametrize("name, block_size", [("intention", 1), ("cmanpand", 3)])
def test_draws_absorbed_by_update_or_by_a_growing_context(name, block_size):
    rng = np.random.default_rng(0)
    context, target = points(N, 2, mask=rng.random((2, N)) < 0.7), points(M, 2, seed=5, mask=rng.random((2, M)) < 0.7)
    model, variables = MODELS[name], variables_of(name)
    run = functools.partial(draws, model, variables, context, target, block_size=block_size)
    one, other = run(use_state=True), run(use_state=False)
    assert one.shape == (3, 2, M, 2)
    # An absent target's sample means nothing.
    close(np.where(target.mask[..., None], one, 0), np.where(target.mask[..., None], other, 0), 1e-3)
    assert np.abs(one[0] - one[1]).min() > 1e-6 and np.isfinite(one).all()
    state = jax.jit(lambda variables, context: condition(model, variables, context, N))(variables, context)
    none = Points(context.x[..., :0, :], context.y[..., :0, :])
    close(one, draws(model, variables, none, target, block_size=block_size, state=state), 1e-5)


@pytest.mark.parametrize("seen", [0, N])
@pytest.mark.parametrize("name, block_size", [("canp", 1), ("anp", 3)])
def test_draws_absorbed_by_a_cache_or_by_a_growing_context(name, block_size, seen, monkeypatch):
    rng = np.random.default_rng(0)
    context, target = (
        points(seen, 2, mask=rng.random((2, seen)) < 0.7),
        points(M, 2, seed=5, mask=rng.random((2, M)) < 1),
    )
    model, variables = cnp_family.made(name)
    run = functools.partial(draws, model, variables, context, target, block_size=block_size)
    by_context = run(use_state=False)
    monkeypatch.setattr(conditioning, "_by_context", None)
    by_cache = run()
    close(by_cache, by_context, 1e-4)
    assert np.abs(by_cache[0] - by_cache[1]).min() > 1e-6 and np.isfinite(by_cache).all()


@pytest.mark.parametrize("row", family("neural_process").values(), ids=family("neural_process"))
def test_every_model_draws_by_blocks(row):
    """Models that need keys or scan over their own targets too."""
    small = dict(
        dim_y=1,
        features=8,
        hidden=8,
        num_layers=1,
        num_heads=2,
        num_latents=2,
        num_block_latents=2,
        latent=4,
        eval_samples=2,
        samples=2,
    )
    fields = row.cls.__dataclass_fields__
    module = row.cls(**{name: value for name, value in small.items() if name in fields})
    context, x = Points(jnp.ones((2, 5, 1)), jnp.ones((2, 5, 1))), jnp.ones((2, 4, 1))

    def drawn(key):
        return sample(module, module.init(key, context, x, key=key), context, x, key=key, block_size=3, num_samples=2)

    assert jax.eval_shape(drawn, jax.random.key(0)).shape == (2, 2, 4, 1)


def test_with_a_tiny_deviation_draws_are_means():
    """Each the mean given the context and the means before it."""
    model, sure = MODELS["lbanp"], jax.tree.map(np.copy, variables_of("lbanp"))
    sure["params"]["predictor"]["layer_1"]["bias"][2:] = -30
    sure["params"]["predictor"]["layer_1"]["kernel"][:, 2:] = 0
    context, target = points(N), points(3, seed=5)
    drawn = draws(model, sure, context, target, block_size=1)
    mean = jax.jit(lambda y, count: model.apply(sure, Points(x, y, jnp.arange(N + 3) < count), target.x).mean)
    x, y = np.concatenate([context.x, target.x]), np.concatenate([context.y, np.zeros((3, 2), np.float32)])
    for i in range(3):
        y[N + i] = mean(y, N + i)[i]
    close(drawn, np.stack([y[N:]] * 3), 1e-5)


def test_blocks_of_one_draw_what_the_joint_model_factors():
    """One block of a joint model is one draw of its normal: mean and covariance of many samples."""
    model, variables, context, target = MODELS["nd"], variables_of("nd"), points(N), points(2, seed=5)
    drawn = draws(model, variables, context, target, block_size=2, num_samples=4000).reshape(4000, -1)
    mean, covariance = jax.jit(
        lambda: (lambda p: (p.mean, p.covariance_matrix))(model.apply(variables, context, target.x))
    )()
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((drawn.mean(0) - mean) / scale, 0, atol=0.07)
    np.testing.assert_allclose((np.cov(drawn.T) - covariance) / np.outer(scale, scale), 0, atol=0.1)


def test_refusals():
    context, target = points(N), points(M, seed=5)
    for name, options, match in [
        ("cmanp", dict(block_size=0), "at least 1 point, not 0"),
        ("lbanp", dict(use_state=True), "no state"),
        ("cmanp", dict(use_state=False, state=()), "a state is given"),
    ]:
        with pytest.raises(ValueError, match=match):
            draws(MODELS[name], variables_of(name), context, target, **options)
    with pytest.raises(ValueError, match="chunk_size"):
        condition(MODELS["cmanp"], variables_of("cmanp"), context, 0)


@pytest.mark.parametrize("name", ["cmanp", "eqtnp"])
def test_draws_are_no_integers_where_outputs_are(name):
    model, variables, x = MODELS[name], variables_of(name), points(M, seed=5).x
    counts = jnp.round(3 * points(N).y)
    draw = lambda y: sample(
        model, variables, Points(points(N).x, y), x, key=jax.random.key(0), block_size=2, num_samples=2
    )
    np.testing.assert_array_equal(draw(counts.astype(int)), draw(counts))


def test_every_block_has_noise_of_its_own():
    plain = jax.tree.map(np.copy, variables_of("lbanp"))
    last = plain["params"]["predictor"]["layer_1"]
    last["kernel"][:], last["bias"][:] = 0, 0  # N(0, 1) at every target
    drawn = draws(MODELS["lbanp"], plain, points(N), points(M, seed=5), block_size=1, num_samples=500)
    np.testing.assert_allclose(np.corrcoef(drawn.reshape(500, -1).T), np.eye(2 * M), atol=0.2)
