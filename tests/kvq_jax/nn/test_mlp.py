"""Linear and MLP: counts, initialisers, the split first layer."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.names import choose
from kvq_jax.nn import BIAS_INITS, KERNEL_INITS, MLP, Linear, fourier_features
from kvq_jax.nn.mlp import fan_in_uniform, product
from kvq_jax.nn.positions import sinusoids

KEY = jax.random.key(0)


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def test_parameter_count():
    shapes = jax.eval_shape(MLP((7, 5)).init, KEY, jnp.zeros((4, 3)))
    assert sum(x.size for x in jax.tree.leaves(shapes)) == (3 * 7 + 7) + (7 * 5 + 5)


def test_equals_dense_layers():
    x = normal(2, 6, 3)
    model = MLP((7, 5))
    variables = model.init(KEY, x)
    layers = variables["params"]
    hidden = nn.relu(nn.Dense(7).apply({"params": layers["layer_0"]}, x))
    expected = nn.Dense(5).apply({"params": layers["layer_1"]}, hidden)
    np.testing.assert_allclose(model.apply(variables, x), expected, atol=1e-6)
    rectified = MLP((7, 5), activate_final=True).apply(variables, x)
    np.testing.assert_allclose(rectified, nn.relu(expected), atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 2), (3, 5), (4, 4)])
def test_a_product_is_a_product_with_all_its_derivatives(x64, shape):
    """Gradients, gradients of gradients and tangents; of one kernel and of one for each of three seeds."""
    x, kernel = normal(3, 2, 6, shape[0]), normal(3, *shape, seed=1)
    tangents = normal(*x.shape, seed=2), normal(*kernel.shape, seed=3)

    @functools.partial(jax.jit, static_argnums=0)
    def found(multiply):
        multiply = jax.vmap(multiply)
        energy = lambda x, kernel: jnp.sin(multiply(x, kernel)).sum()
        steep = lambda x, kernel: sum(jnp.square(g).sum() for g in jax.grad(energy, (0, 1))(x, kernel))
        return *jax.jvp(multiply, (x, kernel), tangents), *(jax.grad(f, (0, 1))(x, kernel) for f in (energy, steep))

    chex.assert_trees_all_close(*(found(multiply) for multiply in (product, jnp.matmul)), rtol=1e-12, atol=1e-12)


def test_several_inputs_are_one_concatenation():
    one, many = normal(2, 1, 4, seed=1), normal(2, 6, 3, seed=2)
    joined = jnp.concatenate([jnp.broadcast_to(one, (2, 6, 4)), many], axis=-1)
    model = MLP((8, 5))
    variables = model.init(KEY, one, many)
    same = model.init(KEY, joined)
    chex.assert_trees_all_equal(variables, same)
    np.testing.assert_allclose(model.apply(variables, one, many), model.apply(variables, joined), atol=1e-6)


def test_no_layers_is_the_identity_of_one_input():
    x = normal(4, 3)
    model = MLP(())
    np.testing.assert_array_equal(model.apply(model.init(KEY, x), x), x)
    with pytest.raises(ValueError, match="one input"):
        model.init(KEY, x, x)


@pytest.mark.parametrize("name", BIAS_INITS)
def test_bias_inits(name):
    bias = Linear(20_000, bias_init=name).init(KEY, jnp.zeros((1, 16)))["params"]["bias"]
    deviation = {"zeros": 0, "fan_in_uniform": 0.25 / math.sqrt(3), "normal": 1}[name]
    assert float(bias.std()) == pytest.approx(deviation, rel=0.03)
    if name == "fan_in_uniform":
        assert 0.24 < float(jnp.abs(bias).max()) <= 0.25


@pytest.mark.parametrize("name", KERNEL_INITS)
def test_kernel_inits(name):
    kernel = Linear(2_000, kernel_init=name).init(KEY, jnp.zeros((1, 16)))["params"]["kernel"]
    variance = {"lecun_normal": 1 / 16, "he_normal": 2 / 16, "glorot_uniform": 2 / 2016, "fan_in_uniform": 1 / 48}[name]
    assert float(kernel.var()) == pytest.approx(variance, rel=0.05)


def test_callable_inits_and_no_bias():
    params = Linear(
        3, kernel_init=nn.initializers.ones, bias_init=lambda fan_in: nn.initializers.constant(fan_in)
    ).init(KEY, jnp.zeros((1, 5)))["params"]
    np.testing.assert_array_equal(params["kernel"], np.ones((5, 3)))
    np.testing.assert_array_equal(params["bias"], np.full(3, 5.0))
    assert set(Linear(3, use_bias=False).init(KEY, jnp.zeros((1, 5)))["params"]) == {"kernel"}
    assert fan_in_uniform(4)(KEY, (3,)).dtype == jnp.float32


def test_computes_in_the_dtype_of_the_parameters():
    model = MLP((4, 2))
    variables = model.init(KEY, jnp.zeros((3, 1), jnp.bfloat16))
    assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    assert model.apply(variables, jnp.ones((3, 1), jnp.bfloat16)).dtype == jnp.float32
    assert model.apply(variables, jnp.ones((3, 1), jnp.uint8)).dtype == jnp.float32


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match="bias_init 'zero'.*'zeros'.*known: zeros, fan_in_uniform, normal"):
        MLP((2,), bias_init="zero").init(KEY, jnp.zeros((1, 1)))
    with pytest.raises(ValueError, match="unknown kernel_init"):
        MLP((2,), kernel_init="lecun").init(KEY, jnp.zeros((1, 1)))
    assert choose({"a": 1}, "a", "letter") == 1


def test_zero_biases_make_rank_two_features_of_a_scalar():
    x = jnp.linspace(-6, 6, 40)[:, None]

    def rank(bias_init):
        model = MLP((64, 64), bias_init=bias_init)
        return int(jnp.linalg.matrix_rank(model.apply(model.init(KEY, x), x), rtol=1e-4))

    assert rank("zeros") == 2
    assert rank("fan_in_uniform") > 10


def test_fourier_features_by_hand():
    x = jnp.array([[0.25, -1.0]])
    root = math.sqrt(0.5)
    expected = [0.25, -1, root, 0, root, -1, 1, 0, 0, 1]  # x; sin, cos of pi x; sin, cos of 2 pi x
    np.testing.assert_allclose(fourier_features(x, 1)[0], expected, atol=1e-6)


@pytest.mark.parametrize("levels, width", [(0, 2), (1, 10), (6, 30)])
def test_fourier_features_shape(levels, width):
    assert fourier_features(jnp.zeros((3, 4, 2)), levels).shape == (3, 4, width)


def test_fourier_features_dtype_and_range():
    assert fourier_features(jnp.zeros((4, 2), jnp.bfloat16), 3).dtype == jnp.float32
    x = np.linspace(-1, 1, 28)[:, None]
    features = fourier_features(jnp.asarray(x, jnp.float32), 6)
    np.testing.assert_allclose(features[:, -2], np.sin(64 * np.pi * x[:, 0]), atol=1e-4)
    with pytest.raises(ValueError, match="levels"):
        fourier_features(x, -1)


def test_sinusoids_by_hand():
    t = np.array([0.5, 7.0], np.float32)
    expected = np.stack([np.sin(t), np.cos(t), np.sin(t / 100), np.cos(t / 100)], -1)
    np.testing.assert_allclose(sinusoids(t, 4), expected, atol=1e-6)
