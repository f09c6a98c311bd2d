"""What does not fit a model is refused where it comes in, in one line that names the argument: every row of MODELS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

from kvq_jax.models import MODELS, AtOnce, IntentionTarget, NeuralProcess, Points
from kvq_jax.models.neural_processes import predictive
from kvq_jax.nn.covariance_head import cholesky, low_rank

KEY = jax.random.key(0)
X, Y, MASK = jnp.ones((2, 5, 1)), jnp.ones((2, 5, 1)), jnp.ones((2, 5), bool)
GOOD, TARGET_X = Points(X, Y, MASK), jnp.ones((2, 3, 1))
TARGET = Points(TARGET_X, jnp.ones((2, 3, 1)))
# What is wrong with a context, and what is said of it.
CONTEXTS = [
    ((X, Y), "context is a tuple: expected kvq_jax.models.Points(x, y) or Points(x, y, mask)"),
    ([X, Y], "context is a list: expected kvq_jax.models.Points"),
    (X, "context is a .*: expected kvq_jax.models.Points"),
    (Points([[0.0], [1.0]], Y[0, :2]), "context.x is a list: expected an array [..., points, features]"),
    (Points(X, Y.tolist()), "context.y is a list"),
    (Points(X[0, :, 0], Y[0]), "context.x has shape (5,): expected [..., points, features]; for points of one feature"),
    (Points(X[0], Y[0, :, 0]), "context.y has shape (5,): expected [..., points, features]"),
    (Points(X, Y[:, :4]), "context.x and context.y differ before their last dimension"),
    (Points(X, Y, MASK[:, :4]), "context.mask (2, 4) is not context.x without its last dimension"),
    (Points(X[None], Y[None], MASK), "context.mask (2, 5) is not context.x without its last"),
    (Points(X, Y, X[..., 0]), "context.mask is boolean (True = there), not float32"),
    (Points(X, Y, MASK.tolist()), "context.mask is boolean (True = there), not list"),
    (GOOD._replace(x=jnp.ones((2, 5, 2))), "context.x and target_x differ in more than the number of points"),
    (Points(X[0], Y[0]), "context.x and target_x differ in more than the number of points"),
]
INPUTS = [
    (TARGET_X[0, :, 0], "target_x has shape (3,): expected [..., points, features]"),
    (TARGET_X.tolist(), "target_x is a list"),
    (None, "target_x is a NoneType"),
]
TARGETS = [
    ((TARGET_X, TARGET_X), "target is a tuple: expected kvq_jax.models.Points"),
    (Points(TARGET_X, jnp.ones((2, 4, 1))), "target.x and target.y differ before their last dimension"),
    (Points(TARGET_X, TARGET_X[..., 0, 0]), "target.y has shape (2,): expected [..., points, features]"),
]
WIDE = jnp.ones((2, 5, 2))


def refused(message: str, model, *arguments, method="__call__") -> None:
    with pytest.raises(ValueError) as raised:
        jax.eval_shape(lambda: model.init(KEY, *arguments, key=KEY, method=method))
    text, (start, *pieces) = str(raised.value), message.split(".*")
    assert text.startswith(start) and all(piece in text for piece in pieces) and "\n" not in text, text


@pytest.mark.parametrize("name", MODELS)
def test_every_model_refuses_what_does_not_fit(name):
    model = MODELS[name].cls()
    for context, message in CONTEXTS:
        refused(message, model, context, TARGET_X)
    for target_x, message in INPUTS:
        refused(message, model, GOOD, target_x)
    methods = ("loss", "log_likelihood") if isinstance(model, NeuralProcess) else ("loss",)
    for method in methods:
        refused(CONTEXTS[0][1], model, CONTEXTS[0][0], TARGET, method=method)
        for target, message in TARGETS:
            refused(message, model, GOOD, target, method=method)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_refuses_another_number_of_outputs(name):
    """With the broadcasting of NumPy a model of one output trains on two without a word."""
    model = MODELS[name].cls()
    two = TARGET._replace(y=jnp.ones((2, 3, 2)))
    if not isinstance(model, NeuralProcess):  # as many outputs as the context has
        refused("context.y and target.y differ in the number of outputs", model, GOOD, two, method="loss")
        return
    refused("context.y has 2 outputs, the model dim_y=1", model, GOOD._replace(y=WIDE), TARGET_X)
    for method in ("loss", "log_likelihood"):
        refused("target.y has 2 outputs, the model dim_y=1", model, GOOD, two, method=method)
    refused("context.y has 1 outputs, the model dim_y=2", model.clone(dim_y=2), GOOD, TARGET_X)
    if hasattr(model, "loss_of_points"):
        refused("points.y has 2 outputs", model, GOOD, GOOD._replace(y=WIDE), method="loss_of_points")


@pytest.mark.parametrize("name", ["cnp", "cmanp", "intention_anp"])
def test_states_and_memories_have_doors_too(name):
    model = MODELS[name].cls()
    refused("context is a tuple", model, (X, Y), method="remember")
    refused("target_x has shape (3,)", model, None, TARGET_X[0, :, 0], method="query")
    with pytest.raises(ValueError, match="context.y has 2 outputs"):
        jax.eval_shape(lambda: model.init(KEY, None, GOOD._replace(y=WIDE), method="update"))


@pytest.mark.parametrize(
    "mask, message",
    [
        ([True] * 3, "target_mask is boolean (True = there), not list"),
        (jnp.zeros((2, 3)), "target_mask is boolean (True = there), not float32"),
        (jnp.ones((4, 3), bool), "target_mask (4, 3) is not target_x without its last dimension, nor one for all"),
    ],
)
def test_masks_of_targets_are_looked_at(mask, message):
    for name in ("cnp", "tnp_d", "mlp"):
        refused(message, MODELS[name].cls(), GOOD, TARGET_X, mask)


def test_arrays_of_numpy_and_names_of_arguments_are_welcome():
    context, target_x = jax.tree.map(np.asarray, (GOOD, TARGET_X))
    jax.eval_shape(lambda: MODELS["cnp"].cls().init(KEY, context=context, target_x=target_x))
    with pytest.raises(ValueError, match="context is a tuple"):
        jax.eval_shape(lambda: MODELS["cnp"].cls().init(KEY, target_x=target_x, context=(X, Y)))


def test_predictions_have_a_standard_deviation():
    """Of each kind, as a pytree too; a mixture of N(0, 1) and N(2, 1) has the variance 1 + 1."""
    ones, factor = jnp.ones((4, 1)), jnp.arange(4.0)[:, None]
    covariance = {"cholesky": cholesky, "lowrank": low_rank}
    joint = {
        kind: build(jnp.zeros(4), factor + 1, lambda: jnp.zeros(4), None, False, 0.0)
        for kind, build in covariance.items()
    }
    two = jnp.stack([jnp.zeros((4, 1)), 2 * ones])
    for found, expected in (
        (predictive.factorised(ones, 3 * ones), 3 * ones),
        (predictive.mixture(two, jnp.ones_like(two)), jnp.sqrt(2) * ones),
        (joint["lowrank"], jnp.sqrt(1 + jnp.arange(1, 5.0) ** 2)),
        (joint["cholesky"], jnp.sqrt(jnp.diag(joint["cholesky"].covariance_matrix))),
    ):
        assert isinstance(found, dist.Distribution)
        np.testing.assert_allclose(found.stddev, expected, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(lambda found: found)(found).stddev, expected, rtol=1e-6)
        assert found.stddev.shape == found.mean.shape


def test_one_mask_serves_a_batch_in_every_method():
    context, alone = Points(X, Y, MASK[0].at[-1].set(False)), Points(X, Y, MASK.at[:, -1].set(False))
    model = MODELS["cnp"].cls(hidden=4)
    variables = model.init(KEY, context, TARGET_X)
    for method in ("loss", "log_likelihood"):
        of = lambda context, method=method: model.apply(variables, context, TARGET, key=KEY, method=method)
        np.testing.assert_array_equal(of(context), of(alone))


@pytest.mark.parametrize("name", ["tnp_d", "tnp_nd", "lbanp", "eqtnp"])
def test_what_an_absent_point_holds_reaches_no_gradient(name):
    """Layer norms would square it."""
    model = MODELS[name].cls(features=8, num_heads=2, num_layers=1)
    x, mask = jnp.linspace(-1.0, 1.0, 4)[:, None], jnp.arange(4) < 3
    target = Points(x + 0.1, jnp.sin(x + 0.1), mask)
    variables = model.init(KEY, Points(x, jnp.sin(x)), x)

    @jax.jit
    def gradient(held):
        context, aim = (
            Points(*(each.at[3].set(held) for each in points[:2]), mask) for points in (Points(x, jnp.sin(x)), target)
        )
        return jax.grad(lambda own: model.apply(own, context, aim, key=KEY, method="loss"))(variables)

    jax.tree.map(np.testing.assert_array_equal, gradient(0.0), gradient(1e25))


def test_one_mask_for_all_tasks_serves_a_network_that_answers_at_once():
    model = AtOnce(IntentionTarget((4,), (3,)))
    x, y, mask = jnp.ones((2, 4, 3)), jnp.ones((2, 4, 1)), jnp.arange(4) < 3
    variables = model.init(KEY, Points(x, y, mask), x)
    both = jnp.broadcast_to(mask, (2, 4))
    np.testing.assert_array_equal(
        model.apply(variables, Points(x, y, mask), x), model.apply(variables, Points(x, y, both), x)
    )
