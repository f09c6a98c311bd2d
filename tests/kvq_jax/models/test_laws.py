"""Laws of every row of MODELS, at narrow widths by the names of fields: a new row is tested without an edit.

Dimensions are powers of two where heads divide them. A model that draws gets the same key on both sides of a
comparison; what it draws depends on shapes, so that where shapes differ only what does not depend on draws is compared.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import MODELS, Model, NeuralProcess, Points, Regressor, family
from kvq_jax.models.neural_processes import predictive
from tests.kvq_jax.nn.drawing import draw, start

KEY = jax.random.key(0)
N, M = 5, 3
# Field -> a narrow value. Other fields keep the class default.
NARROW = dict(
    hidden=8,
    features=8,
    num_layers=2,
    num_heads=2,
    head_features=4,
    embed_depth=2,
    pre_depth=3,
    post_depth=1,
    value_depth=3,
    key_depth=1,
    decoder_depth=2,
    latent=3,
    num_latents=4,
    num_block_latents=4,
    std_layers=1,
    rank=3,
    projector_depth=2,
    diagonal_depth=2,
    train_samples=2,
    eval_samples=3,
    samples=2,
    block_size=2,
    inner_steps=2,
    inner_rate=0.05,
)
# What does not hold by design, and why.
ORDERED = {"mlp": "reads its context as one row, in order; a masked point is a point of zeros"}
RESAMPLED = {
    "bnp": "what a bootstrap draws depends on the places of points, and on how many there are",
    "banp": "as bnp",
}
READ_ANEW = ("tnp_d", "tnp_a", "tnp_nd")  # the targets are in the sets that attend
REDRAWN = ("tnp_a",)  # what is drawn for a mean depends on how many targets there are
each_model = pytest.mark.parametrize("name", MODELS)


def narrow(row: Model):
    """A model of the row's class: NARROW fields, and widths of layers (tuples of integers) of 8."""
    fields = {}
    for name, field in row.cls.__dataclass_fields__.items():
        if name == "features" and isinstance(field.default, tuple) or name.endswith("_features") and field.default:
            fields[name] = (8,) * len(field.default) if isinstance(field.default, tuple) else NARROW["head_features"]
        elif name in NARROW and field.default != 0:
            fields[name] = NARROW[name]
    return row.cls(**fields)


def points(count, *batch, seed=0):
    """With a mask, so that one compiled program serves most laws."""
    return Points(
        draw(*batch, count, 2, seed=seed), draw(*batch, count, 1, seed=seed + 1), np.ones((*batch, count), bool)
    )


def draws(cls) -> bool:
    return any("samples" in name for name in cls.__dataclass_fields__)


@functools.cache
def made(cls, name):
    """Variables of a narrow model, and three programs.

    scores: its loss, and its log-likelihood if it has one. answers: its scores and its mean. learnt: the gradient of
    the log-likelihood less the loss, and `answers`. Scales of norms are about 1: what is drawn comes through.
    """
    model = narrow(MODELS[name])
    variables = start(model, points(N), points(M, seed=2), key=KEY, method="loss", scale=0.4)
    variables = jax.tree_util.tree_map_with_path(lambda path, x: x + 1 if path[-1].key == "scale" else x, variables)
    judged = ["loss"] if isinstance(model, Regressor) else ["loss", "log_likelihood"]

    def scores(variables, context, target):
        return {score: model.apply(variables, context, target, key=KEY, method=score) for score in judged}

    def answers(variables, context, target):
        prediction = model.apply(variables, context, target.x, target.mask, key=KEY)
        mean = prediction if isinstance(model, Regressor) else prediction.mean.reshape(target.y.shape)
        return scores(variables, context, target), mean

    def total(variables, context, target):
        found, mean = answers(variables, context, target)
        return jnp.sum(found.get("log_likelihood", 0)) - jnp.sum(found["loss"]), (found, mean)

    return variables, jax.jit(scores), jax.jit(answers), jax.jit(jax.grad(total, has_aux=True))


def row(name):
    """As `made`, of what MODELS has by that name now."""
    return made(MODELS[name].cls, name)


def close(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), one, other)


def finite(tree):
    for path, leaf in jax.tree.leaves_with_path(tree):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)


def tasks(name):
    """A batch of contexts and targets. What a model draws depends on shapes: one that draws has a single task."""
    count = 1 if draws(MODELS[name].cls) else 2
    return points(N, count), points(M, count, seed=2)


def task(batch, index):
    return Points(*(part[index] for part in batch))


SEEN, ASKED = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 0, 1]], bool), np.array([1, 1, 0], bool)
NOBODY = np.zeros(N, bool)


def masked(points, kept, rubbish=7.0):
    """The points with a mask, and rubbish in the absent places."""
    kept = np.broadcast_to(kept, points.mask.shape)
    hide = lambda rows, value: np.where(kept[..., None], rows, np.float32(value))
    return Points(hide(points.x, rubbish), hide(points.y, -rubbish), kept)


def only(points, kept):
    """The kept points of one task alone, without a mask."""
    return Points(points.x[kept], points.y[kept])


def the_context_is_not_ignored(name):
    """Or the laws below would hold of anything."""
    variables, _, _, learnt = row(name)
    context, target = tasks(name)
    (_, (_, mean)), (_, (_, other)) = (
        learnt(variables, each, target) for each in (context, points(N, len(context.x), seed=9))
    )
    assert np.abs(mean - other).max() > 5e-3


def the_order_of_the_context_does_not_matter(name):
    variables, _, _, learnt = row(name)
    (context, target), order = tasks(name), np.array([3, 1, 4, 0, 2])
    moved = Points(*(part[:, order] for part in context))
    close(learnt(variables, context, target)[1], learnt(variables, moved, target)[1])


def a_masked_point_holds_anything(name):
    """A context point for everything, a target for the scores and for the predictions of the others."""
    variables, _, _, learnt = row(name)
    context, target = tasks(name)
    (gradient, (scores, mean)), (_, (scores_other, mean_other)) = (
        learnt(variables, masked(context, SEEN[: len(context.x)], rubbish), masked(target, ASKED, rubbish))
        for rubbish in (7.0, -3.0)
    )
    close((scores, mean[:, ASKED]), (scores_other, mean_other[:, ASKED]))
    finite(gradient)


def a_masked_point_is_absent_and_leading_axes_are_loops(name):
    """A batch with masks is each task alone without its masked points.

    Targets; and context points, but for models whose context has to keep its places.
    """
    variables, _, answers, learnt = row(name)
    context, target = tasks(name)
    seen = np.ones_like(SEEN) if name in ORDERED | RESAMPLED else SEEN
    for asked in (ASKED, np.ones_like(ASKED)) if name in REDRAWN else (ASKED,):
        batch = masked(context, seen[: len(context.x)]), masked(target, asked)
        _, (scores, mean) = learnt(variables, *batch)
        assert scores["loss"].shape == context.x.shape[:1] and mean.shape == target.y.shape
        for index in range(len(context.x)):
            sets = only(task(context, index), seen[index]), only(task(target, index), asked)
            scores_alone, mean_alone = answers(variables, *sets)
            close({score: value[index] for score, value in scores.items()}, scores_alone)
            if asked.all() or name not in REDRAWN:
                close(mean[index, asked], mean_alone)


def no_context_and_no_targets_are_allowed(name):
    variables, _, _, learnt = row(name)
    context, target = tasks(name)
    finite(learnt(variables, masked(context, NOBODY), target))
    finite(learnt(variables, context, masked(target, NOBODY[:M])))


def no_targets_have_no_likelihood(name):
    variables, scores, _, _ = row(name)
    context, _ = tasks(name)
    of_none = jax.eval_shape(scores, variables, context, points(0, len(context.x)))
    assert {score.shape for score in of_none.values()} == {(len(context.x),)}


def no_points_are_a_context_of_absent_points(name):
    variables, scores, _, learnt = row(name)
    context, target = tasks(name)
    _, (of_absent, _) = learnt(variables, masked(context, NOBODY), target)
    of_none = scores(variables, points(0), task(target, 0))
    close({score: value[0] for score, value in of_absent.items()}, of_none)


def scores_have_finite_gradients(name):
    variables, _, _, learnt = row(name)
    gradient, (scores, mean) = learnt(variables, *tasks(name))
    assert ("log_likelihood" in scores) == (MODELS[name].family == "neural_process")
    finite((gradient, scores, mean))


LAWS = (
    the_context_is_not_ignored,
    the_order_of_the_context_does_not_matter,
    a_masked_point_holds_anything,
    a_masked_point_is_absent_and_leading_axes_are_loops,
    no_context_and_no_targets_are_allowed,
    no_targets_have_no_likelihood,
    no_points_are_a_context_of_absent_points,
    scores_have_finite_gradients,
)
EXCEPTIONS = {
    the_order_of_the_context_does_not_matter: ORDERED | RESAMPLED,
    no_points_are_a_context_of_absent_points: ORDERED,
}


def laws_of(name):
    return [law for law in LAWS if name not in (EXCEPTIONS[law] if law in EXCEPTIONS else ())]


@pytest.mark.parametrize("law, name", [(law, name) for name in MODELS for law in laws_of(name)])
def test_law(law, name):
    law(name)


@pytest.mark.parametrize("name", ["cnp", "np", "tnp_a"])
def test_no_targets_outside_of_a_compiled_program(name):
    """A factorised distribution, a mixture, and a rollout."""
    model, nothing = narrow(MODELS[name]), points(0)
    prediction = model.apply(row(name)[0], points(N), nothing.x, key=KEY)
    assert prediction.mean.shape == prediction.sample(KEY).shape == (0, 1)
    assert predictive.log_prob(prediction, nothing.y, None) == 0


@each_model
def test_a_row_says_what_it_is(name):
    row = MODELS[name]
    interface = {"few_shot": Regressor, "neural_process": NeuralProcess}[row.family]
    assert issubclass(row.cls, interface) and row.label
    if row.family == "neural_process":
        assert row.cls.likelihood in ("marginal", "joint")
    hash(row.cls())


@pytest.mark.parametrize("name", [name for name, row in MODELS.items() if hasattr(row.cls, "loss_of_points")])
def test_all_points_in_one_array_have_the_same_loss(name):
    """Slots of the context hold a target, slots of the points nothing: the numbers are those of separate arrays."""
    variables, _, _, learnt = row(name)
    context, target = tasks(name)
    context = masked(context, np.arange(N) < 4)
    held = [np.concatenate([a[0, :4], b[0], np.full_like(a[0, :2], 7.0)]) for a, b in zip(context, target)]
    together = Points(*held[:2], np.arange(4 + M + 2) < 4 + M)
    first = Points(together.x[:N], together.y[:N], context.mask[0])
    model = narrow(MODELS[name])
    found = jax.jit(functools.partial(model.apply, method="loss_of_points"))(variables, first, together, key=KEY)
    _, (scores, _) = learnt(variables, context, target)
    close(found, scores["loss"][0])


@pytest.mark.parametrize("name", family("neural_process"))
def test_a_remembered_context_answers_as_itself(name):
    variables, _, _, learnt = row(name)
    context, target = map(functools.partial(task, index=0), tasks(name))
    apply = functools.partial(narrow(MODELS[name]).apply, key=KEY)
    if name in READ_ANEW:
        with pytest.raises(ValueError, match="keeps nothing of a context"):
            apply(variables, context, method="remember")
        return

    def answered(variables):
        memory = apply(variables, context, method="remember")
        return apply(variables, memory, target.x, target.mask, method="query").mean

    _, (_, mean) = learnt(variables, *tasks(name))
    close(jax.jit(answered)(variables).reshape(target.y.shape), mean[0])


def test_a_row_added_at_run_time_obeys_the_laws(monkeypatch):
    from kvq_jax.models import NeuralProcessRegressor

    class Residual(NeuralProcessRegressor):
        """The mean of the context's outputs, and what a neural process adds to it."""

        def __call__(self, context, target_x, target_mask=None, *, key=None):
            there = np.ones(context.x.shape[:-1], bool) if context.mask is None else context.mask
            total = jnp.sum(jnp.where(there[..., None], context.y, 0), -2, keepdims=True)
            mean = total / jnp.maximum(jnp.sum(there, -1), 1)[..., None, None]
            return mean + super().__call__(context, target_x, target_mask, key=key)

    monkeypatch.setitem(MODELS, "residual", Model(Residual, "Residual", "few_shot"))
    for law in laws_of("residual"):
        law("residual")
