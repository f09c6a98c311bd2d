"""MAML: its inner loop by explicit gradients, both orders, no context and no steps, and the rate of the paper."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from kvq_jax.models import MAMLRegressor, Points
from kvq_jax.models.few_shot import gradient_descent
from tests.kvq_jax.models.tasks import N, close, tasks

KEY = jax.random.key(0)
SMALL = MAMLRegressor((8, 7), inner_steps=2, inner_rate=0.05)


@functools.cache
def build():
    return jax.jit(SMALL.apply), jax.jit(SMALL.init)(KEY, *tasks())


def test_inner_steps_by_hand():
    """A linear learner, y = w x + b: three steps of descent on the masked mean squared error, written out in NumPy."""
    model = MAMLRegressor((), inner_steps=3, inner_rate=0.1)
    x, y, target = np.array([[1.0], [2.0], [50.0]]), np.array([[1.0], [-1.0], [50.0]]), np.array([[0.0], [3.0]])
    w, b = 0.5, 0.25
    variables = {"params": {"learner": {"layer_0": {"kernel": jnp.array([[w]]), "bias": jnp.array([b])}}}}
    context = Points(jnp.array(x), jnp.array(y), jnp.array([True, True, False]))
    prediction = model.apply(variables, context, jnp.array(target))
    for _ in range(3):
        errors = w * x[:2] + b - y[:2]
        w, b = w - 0.1 * np.mean(2 * errors * x[:2]), b - 0.1 * np.mean(2 * errors)
    np.testing.assert_allclose(prediction, w * target + b, rtol=1e-5)


def test_adapts_each_task_by_explicit_gradients():
    model, (apply, variables) = SMALL, build()
    (x, y, mask), target = tasks(2)
    learner = variables["params"]["learner"]

    def network(params, inputs):
        for index in range(3):
            layer = params[f"layer_{index}"]
            inputs = (inputs if index == 0 else jax.nn.relu(inputs)) @ layer["kernel"] + layer["bias"]
        return inputs

    def error(params, x, y):
        return jnp.mean(jnp.square(network(params, x) - y))

    prediction = apply(variables, Points(x, y, mask), target)
    for task in range(2):
        kept, params = np.flatnonzero(mask[task]), learner
        for _ in range(model.inner_steps):
            gradients = jax.grad(error)(params, x[task, kept], y[task, kept])
            params = jax.tree.map(lambda p, g: p - model.inner_rate * g, params, gradients)
        close(prediction[task], network(params, target[task]))


def test_no_context_and_no_steps_are_no_adaptation():
    apply, variables = build()
    context, target = tasks()
    close(
        apply(variables, context._replace(mask=jnp.zeros(N, bool)), target),
        SMALL.clone(inner_steps=0).apply(variables, context, target),
    )


def test_more_steps_at_evaluation_fit_the_context_better():
    model, (_, variables) = SMALL, build()
    (x, y, _), _ = tasks()
    points = Points(x, y)
    errors = [
        float(model.clone(inner_steps=steps).apply(variables, points, points, method="loss")) for steps in (0, 1, 3, 10)
    ]
    assert errors == sorted(errors, reverse=True)


def test_first_and_second_order():
    """On the loss c p^2 / 2, n steps shrink p by (1 - r c)^n; only the second-order derivative has that factor."""

    def outer(p, first_order):
        return gradient_descent(lambda p: 2 * jnp.sum(p**2), p, steps=3, rate=0.1, first_order=first_order)  # c = 4

    assert float(outer(1.0, False)) == float(outer(1.0, True)) == pytest.approx(0.6**3)
    assert float(jax.grad(outer)(1.0, False)) == pytest.approx(0.6**3)
    assert float(jax.grad(outer)(1.0, True)) == 1


def test_first_order_changes_the_gradient_and_not_the_prediction():
    _, variables = build()

    def gradient(**fields):
        model = SMALL.clone(**fields)
        loss = jax.value_and_grad(lambda v: jnp.mean(jnp.square(model.apply(v, *tasks(2)) - 1)))
        value, gradients = loss(variables)
        return float(value), np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradients)])

    second, first = gradient(), gradient(first_order=True)
    assert second[0] == pytest.approx(first[0], rel=1e-6)
    assert np.linalg.norm(second[1] - first[1]) > 0.01 * np.linalg.norm(second[1])
    np.testing.assert_array_equal(gradient(inner_steps=0)[1], gradient(inner_steps=0, first_order=True)[1])


def test_second_order_gradient_against_finite_differences(x64):
    model = MAMLRegressor((5,), inner_steps=3, inner_rate=0.05)
    arguments = jax.tree.map(lambda a: a.astype(jnp.float64) if a.dtype != bool else a, tasks(2))
    variables = jax.tree.map(lambda p: p.astype(jnp.float64), model.init(KEY, *arguments))
    flat, unravel = ravel_pytree(variables)

    @jax.jit
    def loss(flat):
        return jnp.mean(jnp.square(model.apply(unravel(flat), *arguments) - 1))

    assert loss(flat).dtype == jnp.float64
    directions = jax.random.normal(jax.random.key(3), (4, flat.size), jnp.float64)
    for direction in directions:
        numeric = (loss(flat + 1e-6 * direction) - loss(flat - 1e-6 * direction)) / 2e-6
        np.testing.assert_allclose(jax.grad(loss)(flat) @ direction, numeric, rtol=1e-6, atol=1e-9)


def test_the_paper_s_inner_rate_needs_small_kernels():
    """One sine task on [-6, 6), rate 0.1, the paper's size: bounded with the default kernels, not with lecun_normal."""
    x = jnp.linspace(-6, 6, 10)[:, None]
    arguments = (Points(x, 3 * jnp.sin(x)), x)
    for kernel_init, bound in [("fan_in_uniform", True), ("lecun_normal", False)]:
        model = MAMLRegressor(kernel_init=kernel_init)
        prediction, _ = jax.jit(model.init_with_output)(KEY, *arguments)
        assert bool(jnp.max(jnp.abs(prediction)) < 100) == bound  # NaN is not below 100
