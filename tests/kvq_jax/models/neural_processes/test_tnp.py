"""TNP-D, TNP-A and TNP-ND: the published sizes, laws of sets, and how they follow from one another."""

import functools

import chex
import jax
import numpy as np
import pytest

from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.tnp import TNPA, TNPD, TNPND
from kvq_jax.models.points import Points, join
from kvq_jax.ops import OPERATORS
from tests.kvq_jax.nn.drawing import count, draw, run, start

SMALL = dict(dim_y=2, features=8, embed_depth=2, hidden=6, num_heads=2, num_layers=1)
CONTEXT, TARGET = (Points(draw(2, n, 3, seed=n), draw(2, n, 2, seed=n + 9)) for n in (5, 4))
SEEN, ASKED = np.array([[1, 0, 1, 1, 0], [0] * 5], bool), np.array([[1, 1, 0, 1], [0, 1, 1, 0]], bool)
MASKED = CONTEXT._replace(mask=SEEN), TARGET._replace(mask=ASKED)
KEY = jax.random.key(0)
MODELS = {
    "tnpd": TNPD(**SMALL),
    "tnpa": TNPA(**SMALL, samples=3, permute=False),
    "tnpnd": TNPND(**SMALL, rank=3, std_layers=1, covariance="cholesky"),
    "tnpnd_lowrank": TNPND(**SMALL, rank=3, std_layers=1, covariance="lowrank"),
}
every_model = pytest.mark.parametrize("name", MODELS)


@functools.cache
def variables_of(model):
    return start(model, CONTEXT, TARGET.x)


def value(model, context=CONTEXT, target=TARGET, method="log_likelihood", **kwargs):
    return run(model, variables_of(model), context, target, method=method, **kwargs)


def pick(points, rows, task=slice(None)):
    """Some points, of all tasks or of one."""
    return Points(points.x[task][..., rows, :], points.y[task][..., rows, :])


# Sizes and initialisation


@pytest.mark.parametrize(
    "dim_x, dim_y, fields, marginal, joint",
    [
        (1, 1, {}, 222082, 332821),
        (2, 1, {}, 222146, 332885),
        (2, 3, {}, 222790, 338431),
        (2, 5, dict(features=16, embed_depth=3, hidden=64, num_heads=1, num_layers=4), 15530, 47406),
    ],
)
def test_sizes_of_the_papers(dim_x, dim_y, fields, marginal, joint):
    """One-dimensional regression, EMNIST, CelebA and the wheel bandit."""
    x, y = np.zeros((3, dim_x), np.float32), np.zeros((3, dim_y), np.float32)
    covariance = "lowrank" if fields else "cholesky"
    for model, size in [(TNPD, marginal), (TNPA, marginal), (functools.partial(TNPND, covariance=covariance), joint)]:
        assert count(model(dim_y=dim_y, **fields), Points(x, y), x) == size


def test_initialisation_is_pytorchs():
    def layers(**fields):
        x = np.zeros((3, 1), np.float32)
        return jax.jit(TNPD(num_layers=2, **fields).init)(KEY, Points(x, x), x)["params"]["encoder"].values()

    first, last = layers()
    chex.assert_trees_all_equal(first, last)  # deep copies of one layer
    heads = first["heads"]
    for part, bound in [("query", 6 / 256), ("key", 6 / 256), ("value", 6 / 256), ("out", 1 / 64)]:
        assert (
            0.95 * bound**0.5 < abs(heads[part]["kernel"]).max() < bound**0.5
        )  # Glorot's of [64, 192]; 1/sqrt(fan-in)
        assert not heads[part]["bias"].any()
    assert 0.9 / 8 < abs(first["feed_forward"]["layer_0"]["bias"]).max() < 1 / 8
    first, last = layers(copy_layers=False)
    assert (first["heads"]["key"]["kernel"] != last["heads"]["key"]["kernel"]).any()


# What they owe to sets


@every_model
def test_order_of_the_context_does_not_matter(name):
    model = MODELS[name]
    np.testing.assert_allclose(value(model, pick(CONTEXT, [3, 0, 4, 1, 2])), value(model), rtol=1e-4, atol=1e-4)


@every_model
def test_order_of_the_targets(name):
    """It does not matter to a factorised or low-rank density; it does to a sequence, and to tril(P P')."""
    model = MODELS[name]
    same = np.isclose(value(model, CONTEXT, pick(TARGET, [2, 0, 3, 1])), value(model), rtol=1e-3)
    assert same.all() if name in ("tnpd", "tnpnd_lowrank") else not same.any()


@every_model
def test_masked_is_absent_and_a_batch_is_a_loop(name):
    model, (context, target) = MODELS[name], MASKED
    spoilt = [
        points._replace(**{part: np.where(points.mask[..., None], getattr(points, part), 1e3) for part in "xy"})
        for points in (context, target)
    ]
    masked = value(model, *spoilt)
    for task in range(2):
        alone = value(model, pick(CONTEXT, SEEN[task], task), pick(TARGET, ASKED[task], task))
        np.testing.assert_allclose(masked[task], alone, rtol=2e-4, atol=2e-4)


@every_model
def test_gradients_are_finite_without_context_or_targets(name):
    model, (context, target) = MODELS[name], MASKED
    nobody = target._replace(mask=np.zeros_like(ASKED))

    @jax.jit
    def gradients(variables, target):
        return jax.grad(lambda v: model.apply(v, context, target, method="loss").sum())(variables)

    for points in (target, nobody):
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients(variables_of(model), points)))


@every_model
def test_the_predictive_is_what_is_judged(name):
    """`__call__` sees no outputs of targets, `log_likelihood` does; for TNP-A only the first target is the same."""
    model, (context, target) = MODELS[name], MASKED
    asked = pick(TARGET, slice(0, 1)) if name == "tnpa" else target
    prediction = run(model, variables_of(model), context, asked.x, asked.mask, key=KEY)
    density = predictive.log_prob(prediction, asked.y, asked.mask) / predictive.count(asked.mask, asked.y.shape[1])
    np.testing.assert_allclose(density, value(model, context, asked), rtol=1e-4, atol=1e-5)


KINDS = {"positive": "softplus", "unit": "sigmoid"}  # domain of an alpha -> how it is learnt


@pytest.mark.parametrize("op", [op for op, row in OPERATORS.items() if not row.labels])
def test_every_op(op):
    domain = OPERATORS[op].alpha
    learnt = dict(alpha=0.1, alpha_kind=KINDS[domain]) if domain else {}
    model = TNPD(**SMALL | dict(num_layers=1), op=dict(name=op, **learnt))
    masked = value(model, *MASKED)
    alone = value(model, pick(CONTEXT, SEEN[0], 0), pick(TARGET, ASKED[0], 0))
    np.testing.assert_allclose(masked[0], alone, rtol=1e-3, atol=1e-3)
    assert np.isfinite(masked).all()


# How they follow from one another


def test_tnp_d_is_full_attention_with_a_mask():
    model = MODELS["tnpd"]

    def full(model, context, target):
        points = join(context, target._replace(y=0 * target.y))
        mask = np.concatenate([context.mask, np.zeros_like(target.mask)], -1)
        encoded = model.encoder(model.embedder(points.x, points.y), mask=mask)
        return encoded, model.encode(context, target.x)

    encoded, (of_context, of_target) = model.apply(variables_of(model), *MASKED, method=full)
    np.testing.assert_allclose(encoded, np.concatenate([of_context, of_target], -2), rtol=1e-4, atol=1e-5)


def test_one_target_is_predicted_by_tnp_a_as_by_tnp_d():
    one = pick(TARGET, slice(1, 2))
    variables = variables_of(MODELS["tnpd"])
    marginal, chain = (run(MODELS[n], variables, CONTEXT, one, method="log_likelihood") for n in ("tnpd", "tnpa"))
    np.testing.assert_allclose(chain, marginal, rtol=1e-5)


def test_likelihood_of_tnp_a_is_the_chain_of_its_predictions():
    """One pass with the outputs = one target at a time, with those before it in a cache."""
    model, (context, target) = TNPA(**SMALL | dict(num_layers=2), samples=3, permute=False), MASKED
    y, mean, std = run(model, variables_of(model), context, target.x, target.mask, method="rollout", key=KEY)
    assert np.ptp((y - mean) / std, axis=-2).min() > 1e-3  # each target has noise of its own
    of_y = predictive.factorised(mean, std).log_prob(y)
    for sample in range(model.samples):
        chain = np.where(ASKED, of_y[sample], 0).sum(-1) / ASKED.sum(-1)
        np.testing.assert_allclose(chain, value(model, context, target._replace(y=y[sample])), rtol=1e-3, atol=1e-4)
    assert np.ptp(y, axis=0).min() > 0  # the samples differ


def test_draws_at_whole_places_are_no_integers():
    model, context = TNPA(**SMALL, samples=2, permute=False), pick(CONTEXT, slice(None))
    draw = lambda x: run(model, variables_of(model), context, x, method="rollout", key=KEY)[0]
    whole = np.round(3 * np.asarray(TARGET.x))
    np.testing.assert_array_equal(draw(whole.astype(int)), draw(whole.astype(np.float32)))


def test_rollouts_in_random_orders():
    """In each sample the target that came first is predicted from the context alone, and all others are not."""
    model = TNPA(**SMALL, samples=40)
    _, mean, _ = run(model, variables_of(MODELS["tnpa"]), CONTEXT, TARGET.x, method="rollout", key=KEY)
    alone = run(MODELS["tnpd"], variables_of(MODELS["tnpd"]), CONTEXT, TARGET.x).mean
    first = np.isclose(mean, alone, rtol=1e-4, atol=1e-5).all(-1)
    np.testing.assert_array_equal(first.sum(-1), 1)
    assert first.any(0).all()  # and every target comes first in some sample


def test_one_output_is_a_normal_to_tnp_nd():
    one, context = (points._replace(y=points.y[..., :1]) for points in (pick(TARGET, slice(0, 1)), CONTEXT))
    model = TNPND(**SMALL | dict(dim_y=1), rank=3, std_layers=1)
    variables = start(model, context, one.x)
    joint = run(model, variables, context, one.x)
    normal = predictive.factorised(joint.mean[..., None], joint.variance[..., None] ** 0.5).log_prob(one.y)
    np.testing.assert_allclose(run(model, variables, context, one, method="log_likelihood"), normal[:, 0], rtol=1e-4)


# Losses


def test_loss_over_all_points():
    model, (context, target) = TNPD(**SMALL, loss_points="all"), MASKED
    both = join(context, target)

    def by_hand(model, context, target):
        mean, std = model.moments(np.concatenate(model.encode(context, target.x), -2))
        log_density = -0.5 * ((both.y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        return -np.where(both.mask, log_density.sum(-1), 0).sum(-1) / both.mask.sum(-1)

    expected = model.apply(variables_of(model), context, target, method=by_hand)
    np.testing.assert_allclose(value(model, context, target, method="loss"), expected, rtol=1e-4)


def test_joint_loss_and_the_error_on_the_context():
    joint, model = (
        MODELS["tnpnd_lowrank"],
        TNPND(**SMALL, rank=3, std_layers=1, covariance="lowrank", objective="joint_and_context_error"),
    )
    context, target = MASKED
    np.testing.assert_allclose(value(joint, *MASKED, method="loss"), -value(joint, *MASKED) * ASKED.sum(-1), rtol=1e-5)
    mean = model.apply(variables_of(model), context, target.x, method=lambda m, *args: m.head.mean(m.encode(*args)[0]))
    error = np.where(SEEN, np.square(mean - context.y).sum(-1), 0).sum(-1) / [3, 1]
    np.testing.assert_allclose(value(model, *MASKED, method="loss"), error - value(model, *MASKED), rtol=1e-4)


def test_teacher_noise():
    model, one = TNPA(**SMALL, teacher_noise=0.05), pick(TARGET, slice(0, 1))
    many = Points(np.zeros((9, 400, 3), np.float32), np.full((9, 400, 2), 7, np.float32))
    noise = model.apply(variables_of(MODELS["tnpa"]), many, KEY, method="taught").y - 7
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 0.05], atol=3e-3)
    # A target's noise matters to those after it only: the first is judged by its own output, without noise.
    first = [value(model, target=one, method="loss", key=jax.random.key(seed)) for seed in (0, 1)]
    np.testing.assert_array_equal(*first)
    np.testing.assert_allclose(first[0], -value(model, target=one), rtol=1e-5)
    assert (np.diff([value(model, method="loss", key=jax.random.key(seed)) for seed in (0, 1)], axis=0) != 0).all()


@pytest.mark.parametrize("model", [TNPD(**SMALL, drop_y=0.5), TNPA(**SMALL, teacher_noise=0.05)])
def test_noise_beside_outputs_that_are_integers_is_not(model):
    context, target = (points._replace(y=np.round(3 * np.asarray(points.y))) for points in (CONTEXT, TARGET))
    whole = [points._replace(y=points.y.astype(int)) for points in (context, target)]
    losses = [value(model, *points, method="loss", key=KEY) for points in ((context, target), whole)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_dropped_outputs_of_the_context():
    for cls in (TNPD, TNPA, TNPND):
        model = cls(**SMALL, drop_y=1.0)
        one, other = (value(model, CONTEXT._replace(y=c * CONTEXT.y), method="loss", key=KEY) for c in (1, -7))
        np.testing.assert_array_equal(one, other)  # all are dropped: they do not matter
    points = Points(np.zeros((9, 400, 3), np.float32), np.full((9, 400, 2), 7, np.float32))
    dropped = TNPD(**SMALL, drop_y=0.5).apply(variables_of(MODELS["tnpd"]), points, KEY, method="dropped").y
    np.testing.assert_allclose(np.mean(dropped == 7), 0.5, atol=0.03)
    np.testing.assert_allclose([dropped[dropped != 7].mean(), dropped[dropped != 7].std()], [0, 1], atol=0.08)


def test_refusals():
    for model, method, match in [
        (TNPA(**SMALL, teacher_noise=0.05), "loss", "teacher_noise draws random numbers: give a key"),
        (TNPD(**SMALL, drop_y=0.5), "loss", "drop_y draws random numbers"),
        (TNPD(**SMALL, loss_points="al"), "loss", "unknown loss_points 'al'.*'all'"),
        (TNPND(**SMALL, objective="jont"), "loss", "unknown objective 'jont'.*'joint'"),
    ]:
        with pytest.raises(ValueError, match=match):
            model.apply(variables_of(model), CONTEXT, TARGET, method=method)
    with pytest.raises(ValueError, match="a rollout of TNPA draws"):
        MODELS["tnpa"].apply(variables_of(MODELS["tnpa"]), CONTEXT, TARGET.x)
