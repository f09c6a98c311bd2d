"""The few-shot regressors: the paper's sizes, laws of a regression, masks, untrained Intention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from kvq_jax.models import MODELS, AttentionRegressor, IntentionRegressor, MAMLRegressor, NeuralProcessRegressor, Points
from kvq_jax.models.few_shot import masked_mean
from kvq_jax.ops import OPERATORS
from tests.kvq_jax.models import tasks as regression
from tests.kvq_jax.models.tasks import M, N, close
from tests.kvq_jax.nn.drawing import compiled, drawn, run

KEY = jax.random.key(0)
SMALL = {
    "intention": IntentionRegressor((12, 10)),
    "intention_shared": IntentionRegressor((12, 10), value="shared", fourier_levels=1),
    "intention_weights": IntentionRegressor((12, 10), weight_features=(7,)),
    "attention": AttentionRegressor((8, 6), (7, 6), (5,), num_heads=3, head_features=4, fourier_levels=2),
    "neural_process": NeuralProcessRegressor((9, 5), (8, 7)),
    "maml": MAMLRegressor((8, 7), inner_steps=2, inner_rate=0.05),
}
each_model = pytest.mark.parametrize("name", SMALL)


@functools.cache
def tasks(*leading):
    return jax.tree.map(np.asarray, regression.tasks(*leading))


def start(model, *arguments):
    return drawn(lambda given: model.init(KEY, *given), arguments)


@functools.cache
def build(name):
    return compiled(SMALL[name]), start(SMALL[name], *tasks())


@functools.cache
def gradient(name):
    """Of the squared distance to a goal, by the parameters; and the prediction."""

    def distance(variables, context, target, goal):
        prediction = SMALL[name].apply(variables, context, target)
        return jnp.sum(jnp.square(prediction - goal)), prediction

    return jax.jit(jax.grad(distance, has_aux=True))


def linear(a, b):
    return a * b + b


PAPER_COUNTS = {
    "intention": linear(1, 1000) + 3 * linear(1000, 1000) + 1,  # and one alpha
    "attention": (
        2 * (linear(1, 128) + 2 * linear(128, 128))
        + 3 * linear(128, 640)
        + linear(640, 640)
        + linear(640, 128)
        + linear(128, 128)
        + linear(128, 1)
    ),
    "neural_process": (
        linear(2, 2000)
        + linear(2000, 2000)
        + linear(2000, 16)
        + linear(17, 2000)
        + 2 * linear(2000, 2000)
        + linear(2000, 1)
    ),
    "maml": linear(1, 128) + 3 * linear(128, 128) + linear(128, 1),
}


@pytest.mark.parametrize("name", PAPER_COUNTS)
def test_defaults_are_the_sizes_of_the_paper(name):
    shapes = jax.eval_shape(lambda: regression.tasks(8, dx=1, dy=1))
    prediction, variables = jax.eval_shape(MODELS[name].cls().init_with_output, KEY, *shapes)
    assert prediction.shape == (8, M, 1) and prediction.dtype == jnp.float32
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == PAPER_COUNTS[name]


def test_counts_of_the_pixel_models():
    shapes = jax.eval_shape(lambda: regression.tasks(dx=2, dy=1))
    for name in PAPER_COUNTS:
        variables = jax.eval_shape(MODELS[name].cls(fourier_levels=6).init, KEY, *shapes)
        first_layers = {"intention": 1000, "attention": 128, "neural_process": 4000, "maml": 128}[name]
        extra = (2 + 2 * 2 * 7 - 1) * first_layers  # 30 position features where there was one
        assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == PAPER_COUNTS[name] + extra


@each_model
def test_context_order_does_not_matter_and_targets_are_alone(name):
    apply, variables = build(name)
    context, target = tasks()
    prediction = np.asarray(apply(variables, context, target))
    assert prediction.shape == (M, 3) and prediction.dtype == jnp.float32
    order = np.array([3, 1, 5, 0, 2, 4])
    close(apply(variables, Points(*(part[order] for part in context)), target), prediction)
    close(apply(variables, context, target[::-1]), prediction[::-1])
    close(apply(variables, context, target[:1]), prediction[:1])


@each_model
def test_masked_is_absent(name):
    apply, variables = build(name)
    (x, y, _), target = tasks()
    mask = np.array([True, False, True, True, False, False])
    masked = apply(variables, Points(x, y, mask), target)
    close(masked, apply(variables, Points(x[mask], y[mask]), target))
    spoilt = Points(np.where(mask[:, None], x, 7), np.where(mask[:, None], y, -9), mask)
    close(masked, apply(variables, spoilt, target))


@each_model
def test_without_context(name):
    apply, variables = build(name)
    (x, y, _), target = tasks(2)
    context = Points(x, y, np.arange(2 * N).reshape(2, N) == 0)
    gradients, prediction = gradient(name)(variables, context, target, 0.0)
    assert np.isfinite(prediction).all()
    close(prediction[1], apply(variables, Points(x[1] + 1, y[1] - 1, context.mask[1]), target[1]))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


@each_model
def test_leading_dimensions_are_a_loop(name):
    apply, variables = build(name)
    arguments = tasks(2, 3)
    batched = np.asarray(apply(variables, *arguments))
    assert batched.shape == (2, 3, M, 3)
    for index in [(0, 0), (1, 2)]:
        context = Points(*(part[index] for part in arguments[0]))
        close(batched[index], apply(variables, context, arguments[1][index]))


@each_model
def test_every_parameter_learns(name):
    _, variables = build(name)  # with a gain of the weights' encoder that has left 0: it learns only then
    gradients, _ = gradient(name)(variables, *tasks(2), 1.0)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        key_bias = "'key'" in jax.tree_util.keystr(path) and "bias" in jax.tree_util.keystr(path)  # softmax ignores it
        assert np.isfinite(leaf).all() and (key_bias or np.any(leaf != 0)), jax.tree_util.keystr(path)


@each_model
def test_bfloat16_inputs(name):
    apply, variables = build(name)
    halved = jax.tree.map(lambda a: a if a.dtype == bool else a.astype(jnp.bfloat16), tasks())
    prediction = apply(variables, *halved)
    assert prediction.dtype == jnp.float32
    assert np.median(np.abs(np.asarray(prediction) - apply(variables, *tasks()))) < 0.1


VALUE_OPS = [op for op, row in OPERATORS.items() if not row.labels]


@pytest.mark.parametrize(
    "name, op", [*(("intention", op) for op in VALUE_OPS), ("attention", "linear"), ("attention", "informer")]
)
def test_any_op(name, op):
    learnt = dict(alpha=0.5, alpha_kind="sigmoid") if OPERATORS[op].alpha else {}
    model = SMALL[name].clone(op=dict(name=op, **learnt))
    variables = start(model, *tasks(2))
    assert np.isfinite(run(model, variables, *tasks(2))).all()
    owner = variables["params"] if name == "intention" else variables["params"]["attention"]
    assert ("mixer" in owner) == bool(learnt)
    hash(model)


def test_the_weight_encoder_starts_as_the_identity():
    """e_w(w) = w + g MLP(w) with g = 0 at the start, then another, whatever the number of points."""
    apply = compiled(SMALL["intention_weights"])
    variables = jax.jit(SMALL["intention_weights"].init)(KEY, *tasks())
    plain = {"params": {k: v for k, v in variables["params"].items() if not k.startswith("weight_")}}
    close(apply(variables, *tasks(5)), run(SMALL["intention"], plain, *tasks(5)))
    opened = {"params": variables["params"] | {"weight_gain": jnp.float32(1.0)}}
    assert np.abs(np.asarray(apply(opened, *tasks(5))) - apply(variables, *tasks(5))).max() > 0.01


@pytest.mark.parametrize("name", ["intention", "attention"])
def test_alpha_may_be_a_function_of_the_context(name):
    op = dict(name="intention", alpha=0.1)
    model = SMALL[name].clone(op=op | dict(alpha_kind="set"))
    prediction, variables = jax.jit(model.init_with_output)(KEY, *tasks(2))
    assert any("mixer" in jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(variables))
    fixed = SMALL[name].clone(op=op)  # it starts at its initial value, whatever the context
    close(prediction, run(fixed, variables, *tasks(2)))


@pytest.mark.parametrize("fields", [dict(value="shared"), dict(weight_features=(4,))])
def test_all_linear_layers_have_the_initialisers_of_the_model(fields):
    model = IntentionRegressor((8,), bias_init="zeros", **fields)
    biases = [leaf for path, leaf in jax.tree.leaves_with_path(model.init(KEY, *tasks())) if path[-1].key == "bias"]
    assert len(biases) >= 2 and not any(leaf.any() for leaf in biases)


def test_an_op_without_weights_cannot_encode_them():
    with pytest.raises(ValueError, match="softmax has no weights: expected one of intention"):
        IntentionRegressor((4,), weight_features=(3,), op="softmax").init(KEY, *tasks())


def test_refusals():
    context, target = tasks(2)
    for name, arguments, message in [
        ("maml", (context._replace(y=context.y[0]), target), "context.x and context.y differ"),
        ("attention", (context, target[..., :1]), "context.x and target_x differ"),
        ("neural_process", (context._replace(mask=context.mask[:, :3]), target), r"context.mask \(2, 3\)"),
        ("attention", (context._replace(mask=context.x[..., 0]), target), "context.mask is boolean"),
    ]:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(SMALL[name].init, KEY, *arguments)
    intention = dict(name="intention", alpha_kind="softplus")
    for fields, message in [
        (dict(op="intentoin"), "unknown op 'intentoin': did you mean 'intention'"),
        (dict(value="id"), "unknown value encoder"),
        (dict(op=intention | dict(alpha_kind="soft")), "unknown kind of alpha"),
        (dict(op=intention | dict(alpha=-1.0)), "softplus alpha starts in"),
    ]:
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(SMALL["intention"].clone(**fields).init, KEY, *tasks(2))
    with pytest.raises(ValueError, match="inner_steps"):
        MAMLRegressor(inner_steps=-1).init(KEY, *tasks(2))


# Many masks on the same points: what an evaluation of many context sizes does.

MASKS = np.arange(N) < np.arange(1, N + 1)[:, None]


@each_model
def test_vmap_over_masks_is_a_loop(name):
    apply, variables = build(name)
    (x, y, _), target = tasks()
    together = jax.jit(jax.vmap(lambda mask: apply(variables, Points(x, y, mask), target)))(MASKS)
    for count in (1, 3, N):
        close(together[count - 1], apply(variables, Points(x[:count], y[:count]), target))


def encoder_batches(name, layers):
    """For each kernel of the named layers, the most rows that it multiplies at once under a vmap over MASKS."""
    _, variables = build(name)
    context, target = tasks()

    def masked(variables, mask):
        return SMALL[name].apply(variables, context._replace(mask=mask), target)

    jaxpr = jax.make_jaxpr(jax.vmap(masked, in_axes=(None, 0)))(variables, MASKS)
    products = [equation for equation in all_equations(jaxpr.jaxpr) if equation.primitive.name == "dot_general"]
    rows = {}
    for layer in layers:
        kernel = variables["params"]
        for part in layer.split("/"):
            kernel = kernel[part]
        operands = [(e.invars[0].aval.shape, e.invars[1].aval.shape) for e in products]
        rows[layer] = [
            max(np.prod(s[:-1], dtype=int) for s in pair if s != kernel["kernel"].shape)
            for pair in operands
            if kernel["kernel"].shape in pair
        ]
    return rows


def all_equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from all_equations(inner)


@pytest.mark.parametrize(
    "name, layers",
    [
        ("intention", ["key_encoder/layer_0", "key_encoder/layer_1"]),
        ("attention", ["key_encoder/layer_1", "value_encoder/layer_1", "attention/query", "attention/key"]),
        ("neural_process", ["encoder/layer_1"]),
    ],
)
def test_encoders_do_not_see_the_masks(name, layers):
    for layer, rows in encoder_batches(name, layers).items():
        assert rows and max(rows) <= max(N, M), (layer, rows)


def test_many_masks_cost_little_more_than_one():
    model = IntentionRegressor((64, 64, 64))
    (x, y, _), target = tasks()
    variables = jax.eval_shape(model.init, KEY, Points(x, y), target)

    def cost(function, mask):
        return jax.jit(function).lower(variables, Points(x, y, mask), target).compile().cost_analysis()["flops"]

    over_masks = jax.vmap(model.apply, in_axes=(None, Points(None, None, 0), None))
    many, one = cost(over_masks, MASKS), cost(model.apply, MASKS[0])
    assert many < 2 * one, many / one


def test_the_loss_is_the_mean_squared_error_of_the_targets_that_are_there():
    apply, variables = build("intention")
    context, x = tasks(2)
    target = Points(x, np.ones((2, M, 3), np.float32), np.array([[True] * M, [True, False, False, True]]))
    loss = run(SMALL["intention"], variables, context, target, method="loss")
    errors = np.square(np.asarray(apply(variables, context, x)) - 1)
    np.testing.assert_allclose(loss, [errors[0].mean(), errors[1, [0, 3]].mean()], rtol=1e-5)


def test_masked_mean():
    x = jnp.array([[1.0, 3.0], [5.0, 7.0], [jnp.inf, 0.0]])
    assert float(masked_mean(x, jnp.array([True, True, False]))) == 4
    assert float(masked_mean(x, jnp.zeros(3, bool))) == 0
    assert masked_mean(jnp.stack([x, x]), jnp.array([[True, True, False], [True, False, False]])).tolist() == [4, 2]


# Intention without training (Intention paper, Figures 6 and 7)


def untrained_context_error(bias_init, width=200, points=50):
    model = IntentionRegressor((width,) * 4, op=dict(name="intention", alpha=1e-2), bias_init=bias_init)
    rng = np.random.default_rng(0)
    x = rng.uniform(-6, 6, (16, points, 1)).astype(np.float32)
    y = (rng.uniform(0.1, 5, (16, 1, 1)) * np.sin(x - rng.uniform(0, np.pi, (16, 1, 1)))).astype(np.float32)
    prediction, _ = jax.jit(model.init_with_output)(KEY, Points(x, y), x)
    return np.mean(np.square(np.asarray(prediction) - y))


def test_untrained_intention_needs_biases():
    assert untrained_context_error("zeros") > 2
    assert untrained_context_error("fan_in_uniform") < 0.1
    assert untrained_context_error("normal") < 0.1
