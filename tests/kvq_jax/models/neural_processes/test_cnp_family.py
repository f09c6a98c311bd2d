"""CNP, CANP, NP, ANP, BNP, BANP, Intention process: laws of sets, bounds, states."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.models.neural_processes import latent
from kvq_jax.models.neural_processes.bootstrap import BNP, Draws
from kvq_jax.models.neural_processes.conditional import CANP, CNP
from kvq_jax.models.neural_processes.latent import ANP
from kvq_jax.models.points import Points, join
from kvq_jax.nn.np_encoders import CrossAttentionEncoder, PoolingEncoder
from tests.kvq_jax.models.neural_processes.cnp_family import (
    ATTENTIVE,
    KEY,
    MODELS,
    SMALL,
    K,
    M,
    N,
    chance,
    close,
    hide,
    made,
    points,
)
from tests.kvq_jax.nn.drawing import start

CONTEXT_ORDER, TARGET_ORDER = np.array([3, 0, 6, 1, 5, 2, 4]), np.array([2, 0, 3, 1])
KEPT, ASKED = np.array([0, 2, 3, 6]), np.array([1, 3])
each_model = pytest.mark.parametrize("name", MODELS)


def shapes(model, dim_x):
    context = Points(jnp.zeros((3, dim_x)), jnp.zeros((3, model.dim_y)))
    return jax.eval_shape(lambda: model.init(KEY, context, context.x, key=KEY))["params"]


def both(model, context, target, draws):
    """Moments of the prediction, [2, ..., M, dy], and the loss, [...]."""
    prediction = model.predict(context, target.x, *draws) if draws else model(context, target.x, target.mask)
    loss = model.train_loss(context, join(context, target), *draws) if draws else model.loss(context, target)
    return jnp.stack([prediction.mean, prediction.variance]), loss


def moved(rows, order):
    return Points(*(array[order] for array in rows))


@functools.cache
def tasks(name):
    """Moments, losses and gradient of a batch: a task, context moved, targets moved, points hidden, no context."""
    model, variables = made(name)
    context, target, draws = hide(points(N), range(N)), hide(points(M, seed=5), range(M)), chance(model, N)
    contexts = [context, moved(context, CONTEXT_ORDER), context, hide(context, KEPT), hide(context, [])]
    targets = [target, target, moved(target, TARGET_ORDER), hide(target, ASKED), target]
    many = [draws] * 5
    if isinstance(model, BNP):
        # Indices of the same points: in the places that moved with them, and in the places that are not hidden.
        many[1] = (Draws(*(np.argsort(CONTEXT_ORDER)[indices[:, CONTEXT_ORDER]] for indices in draws[0])),)
        many[3] = (Draws(*(np.zeros((K, N), int) for _ in range(2))),)
        for spread, indices in zip(many[3][0], chance(model, len(KEPT))[0]):
            spread[:, KEPT] = KEPT[indices]
    stack = lambda axis, rows: jax.tree.map(lambda *arrays: np.stack(arrays, axis), *rows)

    def total(variables, *args):
        moments, loss = nn.apply(both, model)(variables, *args)
        return loss.sum(), (moments, loss)

    args = stack(0, contexts), stack(0, targets), stack(1, many)
    gradient, (moments, loss) = jax.jit(jax.grad(total, has_aux=True))(variables, *args)
    return np.moveaxis(np.asarray(moments), 1, 0), np.asarray(loss), gradient


def alone(name, context, target, draws):
    """`both` of one task."""
    model, variables = made(name)
    return jax.jit(nn.apply(both, model))(variables, context, target, draws)


@each_model
def test_context_in_any_order(name):
    moments, loss, _ = tasks(name)
    close((moments[1], loss[1]), (moments[0], loss[0]))


@each_model
def test_targets_in_any_order(name):
    moments, loss, _ = tasks(name)
    close((moments[2], loss[2]), (moments[0][:, TARGET_ORDER], loss[0]))


@each_model
def test_a_masked_point_is_absent_and_a_task_is_alone_in_its_batch(name):
    moments, loss, _ = tasks(name)
    context, target = (
        Points(*(array[some] for array in rows[:2])) for rows, some in ((points(N), KEPT), (points(M, seed=5), ASKED))
    )
    close((moments[3][:, ASKED], loss[3]), alone(name, context, target, chance(MODELS[name], len(KEPT))))


@each_model
def test_whatever_is_missing_all_is_finite(name):
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tasks(name)))


@pytest.mark.parametrize("name", ["canp", "bnp", "intention"])
def test_arrays_without_points_are_no_context(name):
    moments, loss, _ = tasks(name)
    close((moments[4], loss[4]), alone(name, points(0), points(M, seed=5), chance(MODELS[name], 0)))


@pytest.mark.parametrize("name", ["np", "bnp"])
def test_draws_come_from_the_key(name):
    model, variables = made(name)
    context, target = points(N, 2), points(M, 2, seed=5)
    for method in ("log_likelihood", "loss"):
        with pytest.raises(ValueError, match=f"{type(model).__name__} draws random numbers: give a key"):
            model.apply(variables, context, target, method=method)

    def outputs(model):
        # Mixed in each point: log mean_k p_k(y_i), then the mean over targets.
        prediction = model(context, target.x, key=KEY)
        components = prediction.component_distribution
        assert (prediction.batch_shape, prediction.event_shape, components.batch_shape) == ((2, M), (2,), (2, M, 3))
        of_point = jax.nn.logsumexp(components.log_prob(target.y[..., None, :]), axis=-1) - np.log(3)
        return of_point.mean(-1), model.log_likelihood(context, target, key=KEY), model.loss(context, target, key=KEY)

    mixed, found, loss = jax.jit(nn.apply(outputs, model))(variables)
    close(found, mixed)
    assert loss.shape == (2,) and np.isfinite(loss).all()


def test_conditional_loss_is_the_mean_over_all_points():
    context, target = points(N), points(M, seed=5)
    everything = Points(*(np.concatenate(pair) for pair in zip(context[:2], target[:2])))
    mean, variance = alone("cnp", context, everything, ())[0]
    terms = (everything.y - mean) ** 2 / variance + np.log(2 * np.pi * variance)
    close(tasks("cnp")[1][0], terms.sum(-1).mean() / 2)


def test_bounds_without_targets():
    """No target: q = p, so that no divergence is left, and the importance bound is above the ELBO."""
    model, variables = made("np")
    context, target, (noise,) = points(N), points(M, seed=5)._replace(mask=np.zeros(M, bool)), chance(MODELS["np"], N)

    def outputs(model):
        mixed = model.predict(context, context.x, noise).component_distribution
        losses = [
            model.clone(objective=name).apply(variables, context, join(context, target), noise, method="train_loss")
            for name in ("importance", "elbo")
        ]
        return mixed.log_prob(context.y[:, None]).sum(0), losses

    of_sample, losses = jax.jit(nn.apply(outputs, model))(variables)
    close(losses, [-(jax.nn.logsumexp(of_sample) - np.log(K)) / N, -of_sample.mean() / N])
    assert losses[0] < losses[1]


STREAMED = dict(
    cnp=MODELS["cnp"],
    np=MODELS["np"],
    intention=MODELS["intention"],
    informer=CANP(
        **SMALL, **ATTENTIVE, op=dict(name="informer", alpha=0.5, alpha_kind="sigmoid"), self_attention=False
    ),
    linear=CANP(**SMALL, **ATTENTIVE, op="linear", self_attention=False),
)


def in_dtype(model, dtype):
    """Variables, a context of which points are absent, and targets."""
    context, target_x = points(N, 2), points(M, 2, seed=5).x
    variables = start(model, context, target_x, key=KEY)
    variables, *xy, target_x = jax.tree.map(dtype, (variables, context.x, context.y, target_x))
    return variables, Points(*xy, np.random.default_rng(0).random((2, N)) < 0.7), target_x


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("cnp", np.float32),
        ("intention", np.float32),
        ("np", np.float64),
        ("intention", np.float64),
        ("informer", np.float64),
        ("linear", np.float64),
    ],
)
def test_conditioning_in_parts(name, dtype):
    model, tolerance = STREAMED[name], {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    variables, context, target_x = in_dtype(model, dtype)
    parts = [Points(*(array[:, some] for array in context)) for some in np.split(CONTEXT_ORDER, [2, 5])]

    def outputs(model):
        empty = model.init_state((2,))
        state = model.merge(model.update(empty, parts[2]), model.update(model.update(empty, parts[0]), parts[1]))
        assert jax.tree.map(np.shape, state) == jax.tree.map(np.shape, empty)  # no memory of the number of points
        pairs = [
            (model.query(model.finish(each), target_x, key=KEY), model(points, target_x, key=KEY))
            for each, points in ((state, context), (empty, context._replace(mask=np.zeros((2, N), bool))))
        ]
        return [[(one.mean, one.variance) for one in ones] for ones in zip(*pairs)]

    with jax.enable_x64(dtype == np.float64):
        in_parts, at_once = jax.jit(nn.apply(outputs, model))(variables)
        assert in_parts[0][0].dtype == dtype
        close(in_parts, at_once, tolerance)


CACHED = STREAMED | {
    "canp": MODELS["canp"],
    "anp": MODELS["anp"],
    "without self-attention": MODELS["canp"].clone(self_attention=False),
    "without projections": MODELS["canp"].clone(self_attention=False, num_heads=0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CACHED)
def test_a_cache_grows_to_the_whole_context(name, dtype):
    """Two points, one by one, and after it has become wider all others; and none at all."""
    model, tolerance = CACHED[name], {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    variables, context, target_x = in_dtype(model, dtype)

    def outputs(model):
        empty = cache = model.init_cache((2,), 3)
        for i in range(2):
            cache = model.extend(cache, Points(*(array[:, i : i + 1] for array in context)), jnp.int32(i))
        cache = model.extend(model.widen(cache, N + 1), Points(*(array[:, 2:] for array in context)), 2)
        pairs = [
            (model.query(model.finish_cache(each), target_x, key=KEY), model(points, target_x, key=KEY))
            for each, points in ((cache, context), (empty, context._replace(mask=np.zeros((2, N), bool))))
        ]
        return [[(one.mean, one.variance) for one in ones] for ones in zip(*pairs)]

    with jax.enable_x64(dtype == np.float64):
        grown, whole = jax.jit(nn.apply(outputs, model))(variables)
        assert grown[0][0].dtype == dtype
        close(grown, whole, tolerance)


@pytest.mark.parametrize("name", ["np", "bnp"])
def test_every_task_of_a_batch_draws_for_itself(name):
    model, variables = made(name)
    context, target = (Points(*(np.stack([rows, rows]) for rows in points(n, seed=n)[:2])) for n in (7, 4))
    mean = jax.jit(lambda: model.apply(variables, context, target.x, key=KEY).mean)()
    assert np.abs(mean[0] - mean[1]).max() > 1e-3


@pytest.mark.parametrize("name", CACHED)
def test_a_full_cache_takes_no_point_and_loses_none(name):
    model = CACHED[name]
    variables, context, _ = in_dtype(model, np.float32)
    cache = model.apply(variables, (2,), N, method="init_cache")
    with pytest.raises(ValueError, match=f"no room for {N} rows from place 1 on"):
        model.apply(variables, cache, context, 1, method="extend")
    with pytest.raises(ValueError, match="cannot be narrowed"):
        model.apply(variables, cache, N - 1, method="widen")


@pytest.mark.parametrize(
    "model, message",
    [
        (MODELS["canp"].clone(self_attention=2), "only one layer of self-attention can grow, not 2"),
        (MODELS["canp"].clone(self_attention=False, num_heads=0, key_depth=0), "a cache needs the width of its keys"),
        (MODELS["banp"], "BANP has no cache: it reads its context anew"),
    ],
)
def test_no_cache_says_so(model, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: model.init(KEY, (2,), 3, method="init_cache"))


@pytest.mark.parametrize(
    "model, message",
    [
        (
            CANP(**SMALL, **ATTENTIVE),
            "with self_attention every point depends on all others: no state of constant size",
        ),
        (ANP(**SMALL, **ATTENTIVE, self_attention=False), "a state of softmax belongs to the queries it was made for"),
        (
            ANP(**SMALL, **ATTENTIVE, self_attention=False, op="sigma_intention"),
            "sigma_intention has no streaming state",
        ),
        (MODELS["bnp"], "BNP has no state of constant size"),
        (MODELS["banp"], "BANP has no state of constant size"),
    ],
)
def test_no_state_says_so(model, message):
    variables = start(model, points(N), points(M).x, key=KEY)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: model.apply(variables, (2,), method="init_state"))


@pytest.mark.parametrize("encoder", [PoolingEncoder(self_attention=True), CrossAttentionEncoder(op="intention")])
def test_what_attends_to_itself_cannot_be_updated(encoder):
    """Not even from what a context was remembered by."""
    x = jnp.ones((N, 1))
    with pytest.raises(ValueError, match="no state of constant size"):
        variables = encoder.init(KEY, x, x, x)
        encoder.apply(variables, encoder.apply(variables, x, x, method="remember"), x, x, method="update")


@pytest.mark.parametrize(
    "model, message",
    [
        (CNP(decoder_depth=1), "a decoder has 2 layers at least, not 1"),
        (CNP(post_depth=0), "post_depth=0 leaves no layer: at least 1"),
        (CANP(pre_depth=2), "pre_depth=2 leaves no layer before self-attention: at least 3"),
        (CNP(std_map="softmax"), "unknown std_map 'softmax': did you mean 'softplus'"),
        (CANP(op="softmx"), "unknown op 'softmx': did you mean 'softmax'"),
    ],
)
def test_refusals(model, message):
    with pytest.raises(ValueError, match=message):
        shapes(model, 1)


def test_the_elbo_is_the_likelihood_less_the_divergence():
    """With q different from p: mean_k sum_i log N(y_i; mean_ik, std_ik) - KL(q || p) over N + M, in NumPy."""
    model, variables = made("np")
    model, context, target = model.clone(objective="elbo"), points(N), points(M, seed=5)
    noise = np.random.default_rng(3).normal(size=(K, model.latent)).astype(np.float32)

    def parts(model, context, target, noise):
        both = join(context, target)
        given_context, given_both = (model.z_given(model.pooling(part.x, part.y)) for part in (context, both))
        z = latent.reparametrised(given_both, noise)
        decoded = model.decode((model.encode(context, both.x)[0], z[..., None, :]), both.x)
        of_z = [(of.base_dist.loc, of.base_dist.scale) for of in (given_context, given_both)]
        return *of_z, decoded, model.train_loss(context, both, noise)

    found = jax.jit(nn.apply(parts, model))(variables, context, target, noise)
    (p_mean, p_std), (q_mean, q_std), (mean, std), loss = jax.tree.map(np.float64, found)
    y = np.concatenate([context.y, target.y])
    log_likelihood = (-0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum((-2, -1)).mean()
    divergence = (np.log(p_std / q_std) + (q_std**2 + (q_mean - p_mean) ** 2) / (2 * p_std**2) - 0.5).sum()
    assert divergence > 0.01
    np.testing.assert_allclose(loss, -(log_likelihood - divergence) / (N + M), rtol=1e-4)


def test_an_unknown_objective():
    model, variables = made("np")
    with pytest.raises(ValueError, match="unknown objective 'elbow': did you mean 'elbo'"):
        jax.eval_shape(
            lambda: model.clone(objective="elbow").apply(variables, points(N), points(M), key=KEY, method="loss")
        )
