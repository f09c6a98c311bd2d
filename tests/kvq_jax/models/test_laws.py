"""Laws of every row of MODELS, at narrow widths by the names of fields: a new row is tested without an edit.

Dimensions are powers of two where heads divide them. A model that draws gets the same key on both sides of a
comparison; what it draws depends on shapes, so that where shapes differ only what does not depend on draws is compared.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import MODELS, Model, NeuralProcess, Points, Regressor
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
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # quick to compile
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


@functools.cache
def made(cls, name):
    """Variables of a narrow model, its mean, loss and, where there is one, log-likelihood, and their gradient."""
    model = narrow(MODELS[name])
    variables = start(model, points(N), points(M, seed=2), key=KEY, method="loss", scale=0.4)

    def measures(variables, context, target):
        found = {"loss": model.apply(variables, context, target, key=KEY, method="loss")}
        prediction = model.apply(variables, context, target.x, target.mask, key=KEY)
        if isinstance(model, Regressor):
            return found | {"mean": prediction}
        found["log_likelihood"] = model.apply(variables, context, target, key=KEY, method="log_likelihood")
        return found | {"mean": prediction.mean.reshape(target.y.shape)}

    def total(variables, context, target):
        return sum(jnp.sum(value) for name, value in measures(variables, context, target).items() if name != "mean")

    return variables, jit(measures), jit(jax.grad(total))


def row(name):
    """As `made`, of what MODELS has by that name now."""
    return made(MODELS[name].cls, name)


def close(one, other, names=None):
    for name in names or one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-3, atol=1e-3, err_msg=name)


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
    variables, measures, _ = row(name)
    context, target, order = points(N), points(M, seed=2), np.array([3, 1, 4, 0, 2])
    found = measures(variables, context, target)
    assert found["mean"].shape == (M, 1) and found["loss"].shape == ()
    close(found, measures(variables, Points(*(part[order] for part in context)), target))


def a_masked_context_point_is_absent(name):
    """Whatever stands in its place; with the same shapes, and so the same draws, and against the shorter context."""
    variables, measures, gradient = row(name)
    context, target, kept = points(N), points(M, seed=2), np.array([True, True, False, True, False])
    found = measures(variables, masked(context, kept), target)
    close(found, measures(variables, masked(context, kept, -3.0), target))
    if name not in RESAMPLED:
        close(found, measures(variables, only(context, kept), target))
    finite(gradient(variables, masked(context, kept), target))


def a_masked_target_is_absent(name):
    """For the loss, the log-likelihood and the predictions of the others."""
    variables, measures, gradient = row(name)
    context, target, kept = points(N), points(M, seed=2), np.array([True, True, False])
    found = measures(variables, context, masked(target, kept))
    other = measures(variables, context, masked(target, kept, -3.0))
    shorter = measures(variables, context, only(target, kept))
    scores = [part for part in found if part != "mean"]
    close(found, other, scores)
    close(found, shorter, scores)
    np.testing.assert_allclose(found["mean"][kept], other["mean"][kept], rtol=1e-3, atol=1e-3)
    finite(gradient(variables, context, masked(target, kept)))


def leading_axes_are_loops(name):
    """Without draws, task by task; a model that draws is compared under axes of one."""
    variables, measures, _ = row(name)
    context, target = points(N, B), points(M, B, seed=2)
    pick = lambda tree, index: jax.tree.map(lambda leaf: leaf[index], tree)
    draws = isinstance(narrow(MODELS[name]), NeuralProcess) and "samples" in " ".join(
        MODELS[name].cls.__dataclass_fields__
    )
    if draws:
        alone = measures(variables, pick(context, 0), pick(target, 0))
        close(alone, pick(measures(variables, *pick((context, target), slice(0, 1))), 0))
        return
    together = measures(variables, context, target)
    for index in range(B):
        close(pick(together, index), measures(variables, pick(context, index), pick(target, index)))


def no_context_is_allowed(name):
    """Absent points, and no points at all."""
    variables, measures, gradient = row(name)
    target, nobody = points(M, seed=2), masked(points(N), np.zeros(N, bool))
    found = measures(variables, nobody, target)
    finite(found)
    finite(gradient(variables, nobody, target))
    if name not in ORDERED:
        close(found, measures(variables, points(0), target))


def a_loss_and_its_gradient_are_finite(name):
    variables, measures, gradient = row(name)
    found = measures(variables, points(N, B), points(M, B, seed=2))
    assert found["loss"].shape == (B,) and found["mean"].shape == (B, M, 1)
    assert ("log_likelihood" in found) == (MODELS[name].family == "neural_process")
    finite((found, gradient(variables, points(N), points(M, seed=2))))


LAWS = (
    the_order_of_the_context_does_not_matter,
    a_masked_context_point_is_absent,
    a_masked_target_is_absent,
    leading_axes_are_loops,
    no_context_is_allowed,
    a_loss_and_its_gradient_are_finite,
)
EXCEPTIONS = {the_order_of_the_context_does_not_matter: ORDERED | RESAMPLED, a_masked_context_point_is_absent: ORDERED}


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
