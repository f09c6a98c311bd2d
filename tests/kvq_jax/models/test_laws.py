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
from tests.kvq_jax.nn.drawing import draw, start

KEY = jax.random.key(0)
N, M, B = 5, 3, 2
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
    """Variables of a narrow model, and programs: its scores (loss, log-likelihood if any), their gradient, its mean."""
    model = narrow(MODELS[name])
    variables = start(model, points(N), points(M, seed=2), key=KEY, method="loss", scale=0.4)
    judged = ["loss"] if isinstance(model, Regressor) else ["loss", "log_likelihood"]

    def scores(variables, context, target):
        return {score: model.apply(variables, context, target, key=KEY, method=score) for score in judged}

    def total(variables, context, target):
        return sum(jnp.sum(value) for value in scores(variables, context, target).values())

    def mean(variables, context, target):
        prediction = model.apply(variables, context, target.x, target.mask, key=KEY)
        return prediction if isinstance(model, Regressor) else prediction.mean.reshape(target.y.shape)

    return variables, jax.jit(scores), jax.jit(jax.grad(total)), jax.jit(mean)


def row(name):
    """As `made`, of what MODELS has by that name now."""
    return made(MODELS[name].cls, name)


def close(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), one, other)


def finite(tree):
    for path, leaf in jax.tree.leaves_with_path(tree):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)


def only(points, kept):
    """The kept points alone, without a mask."""
    return Points(points.x[kept], points.y[kept])


def masked(context, kept, rubbish=7.0):
    """The context with a mask, and rubbish in the absent places."""
    hide = lambda rows, value: np.where(kept[..., None], rows, np.float32(value))
    return Points(hide(context.x, rubbish), hide(context.y, -rubbish), kept)


def the_order_of_the_context_does_not_matter(name):
    variables, scores, _, mean = row(name)
    context, target, order = points(N), points(M, seed=2), np.array([3, 1, 4, 0, 2])
    moved = Points(*(part[order] for part in context))
    assert mean(variables, context, target).shape == (M, 1)
    for measure in (scores, mean):
        close(measure(variables, context, target), measure(variables, moved, target))


def a_masked_point_holds_anything(name):
    """A context point for everything, a target for the scores and for the predictions of the others."""
    variables, scores, gradient, mean = row(name)
    seen, asked = np.array([True, True, False, True, False]), np.array([True, True, False])
    first, second = (
        (masked(points(N), seen, rubbish), masked(points(M, seed=2), asked, rubbish)) for rubbish in (7.0, -3.0)
    )
    close(scores(variables, *first), scores(variables, *second))
    close(mean(variables, *first)[asked], mean(variables, *second)[asked])
    finite(gradient(variables, *first))


def a_masked_point_is_absent(name):
    """A target; and a context point, but for models whose context has to keep its places."""
    variables, scores, _, _ = row(name)
    target, asked = points(M, seed=2), np.array([True, True, False])
    context, fewer = points(N), points(N)
    if name not in ORDERED | RESAMPLED:
        seen = np.array([True, True, False, True, False])
        context, fewer = masked(context, seen), only(context, seen)
    close(scores(variables, context, masked(target, asked)), scores(variables, fewer, only(target, asked)))


def leading_axes_are_loops(name):
    """Task by task. What a model draws depends on shapes: one that draws has a single task."""
    variables, scores, _, mean = row(name)
    tasks = 1 if draws(MODELS[name].cls) else 2
    context, target = points(N, tasks), points(M, tasks, seed=2)
    together = scores(variables, context, target), mean(variables, context, target)
    assert together[0]["loss"].shape == (tasks,) and together[1].shape == (tasks, M, 1)
    finite(together)
    for index in range(tasks):
        own, context_, target_ = jax.tree.map(lambda leaf: leaf[index], (together, context, target))  # noqa: B023
        close(own, (scores(variables, context_, target_), mean(variables, context_, target_)))


def no_context_is_allowed(name):
    variables, scores, gradient, mean = row(name)
    target, nobody = points(M, seed=2), masked(points(N), np.zeros(N, bool))
    finite((scores(variables, nobody, target), mean(variables, nobody, target), gradient(variables, nobody, target)))


def no_points_are_a_context_of_absent_points(name):
    variables, scores, _, _ = row(name)
    target, nobody = points(M, seed=2), masked(points(N), np.zeros(N, bool))
    close(scores(variables, nobody, target), scores(variables, points(0), target))


def scores_have_finite_gradients(name):
    variables, scores, gradient, _ = row(name)
    found = scores(variables, points(N), points(M, seed=2))
    assert ("log_likelihood" in found) == (MODELS[name].family == "neural_process")
    finite((found, gradient(variables, points(N), points(M, seed=2))))


LAWS = (
    the_order_of_the_context_does_not_matter,
    a_masked_point_holds_anything,
    a_masked_point_is_absent,
    leading_axes_are_loops,
    no_context_is_allowed,
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
    variables, scores, _, _ = row(name)
    context, target = masked(points(N), np.arange(N) < 4), points(M, seed=2)
    held = [np.concatenate([first[:4], second, np.full_like(first[:2], 7.0)]) for first, second in zip(context, target)]
    together = Points(*held[:2], np.arange(4 + M + 2) < 4 + M)
    first = Points(together.x[:N], together.y[:N], context.mask)
    model = narrow(MODELS[name])
    found = jax.jit(functools.partial(model.apply, method="loss_of_points"))(variables, first, together, key=KEY)
    close(found, scores(variables, context, target)["loss"])


@pytest.mark.parametrize("name", family("neural_process"))
def test_a_remembered_context_answers_as_itself(name):
    variables, _, _, mean = row(name)
    context, target = points(N), points(M, seed=2)
    apply = functools.partial(narrow(MODELS[name]).apply, key=KEY)
    if name in READ_ANEW:
        with pytest.raises(ValueError, match="keeps nothing of a context"):
            apply(variables, context, method="remember")
        return

    def answered(variables):
        memory = apply(variables, context, method="remember")
        return apply(variables, memory, target.x, target.mask, method="query").mean

    close(jax.jit(answered)(variables).reshape(target.y.shape), mean(variables, context, target))


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
