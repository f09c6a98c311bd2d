"""Models from pairs to one vector: sizes by hand, functions of a set, masks, Intention as least squares."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.models import (
    TARGET_REGRESSORS,
    WEIGHT_REGRESSORS,
    AttentionTarget,
    IntentionTarget,
    IntentionWeights,
    MLPTarget,
    NeuralProcessTarget,
)
from kvq_jax.nn import MultiHead

N, D, S = 10, 3, 4
MODELS = {name: model.cls(latent=S) for name, model in WEIGHT_REGRESSORS.items()} | {
    "intention_target": IntentionTarget((6, 5), (4,)),
    "attention_target": AttentionTarget((6, 5), (4,), num_heads=3, head_features=2),
    "neural_process_target": NeuralProcessTarget((6, 5), (4,)),
    "mlp_target": MLPTarget((6, 5)),
}
each_model = pytest.mark.parametrize("name", MODELS)
each_set_model = pytest.mark.parametrize("name", [name for name in MODELS if "mlp" not in name])


@functools.cache
def build(name):
    return jax.jit(MODELS[name].apply), jax.jit(MODELS[name].init)(jax.random.key(0), *pairs())


def pairs(*leading):
    x_key, w_key = jax.random.split(jax.random.key(1))
    x, w = jax.random.normal(x_key, (*leading, N, D)), jax.random.normal(w_key, (*leading, D, 1))
    return x, x @ w


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-5)


def linear(a, b):
    return a * b + b


ROW = D + 1
COUNTS = {
    "intention": 2 * (linear(ROW, S) + linear(S, S)) + 1 + linear(S * S, S) + linear(S, D),  # and one alpha
    "attention": 3 * (linear(ROW, S) + linear(S, 5 * S)) + linear(5 * S, 5 * S) + linear(5 * S, D),
    "neural_process": linear(ROW, S) + linear(S, S) + 3 * linear(S, S) + linear(S, D),
    "mlp": linear(N * ROW, S) + 2 * linear(S, S) + linear(S, D),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    _, variables = build(name)
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == COUNTS[name]


TARGET_COUNTS = {  # of five observations (x, y, d), each three times in a row of 9
    "intention": linear(9, 512) + linear(512, 512) + 1 + linear(9 * 512, 128) + linear(128, 2),
    "attention": (
        linear(9, 128)
        + linear(128, 128)
        + 2 * linear(9, 640)
        + linear(128, 640)
        + linear(640, 640)
        + linear(640, 2048)
        + linear(2048, 2)
    ),
    "neural_process": linear(9, 512) + 3 * linear(512, 512) + linear(512, 128) + linear(128, 2),
    "mlp": linear(45, 512) + 2 * linear(512, 512) + linear(512, 2),
}


@pytest.mark.parametrize("name", TARGET_REGRESSORS)
def test_defaults_of_the_target_regressors_are_the_sizes_of_the_paper(name):
    init = TARGET_REGRESSORS[name].cls().init_with_output
    target, variables = jax.eval_shape(init, jax.random.key(0), jnp.zeros((5, 2)), jnp.zeros((5, 1)))
    assert target.shape == (2,) and sum(leaf.size for leaf in jax.tree.leaves(variables)) == TARGET_COUNTS[name]


def test_raw_keys_three_times_are_raw_keys_once_with_a_third_of_alpha():
    """w(K, V) of K = [O, O, O] is three times the block (O'O + alpha/3)^-1 O'V / 3: copies change rates alone."""
    x, y = pairs()
    model = MODELS["intention_target"].clone(op=dict(name="intention", alpha=0.3), decoder_features=())
    target, variables = jax.jit(model.init_with_output)(jax.random.key(0), x, y)
    params = jax.device_get(variables["params"])
    rows = np.float64(jnp.concatenate([x, y], -1))
    value = np.tile(rows, 3)
    first, second = (params["value_encoder"][layer] for layer in ("layer_0", "layer_1"))
    value = np.maximum(value @ first["kernel"] + first["bias"], 0) @ second["kernel"] + second["bias"]
    block = np.linalg.solve(rows.T @ rows + 0.1 * np.eye(D + 1), rows.T @ value) / 3
    read = params["decoder"]["layer_0"]
    close(target, np.tile(block, (3, 1)).ravel() @ read["kernel"] + read["bias"])


def test_attention_by_hand():
    """Encoders and heads end in LeakyReLU of slope 0.01, and the mean of their rows is read."""
    apply, variables = build("attention")
    params, (x, y) = variables["params"], pairs()
    linear = lambda rows, part: rows @ part["layer_0"]["kernel"] + part["layer_0"]["bias"]
    leaky = lambda rows: np.where(rows > 0, rows, 0.01 * rows)
    rows = np.concatenate([x, y], -1)
    sides = [leaky(linear(rows, params[f"{side}_encoder"])) for side in ("query", "key", "value")]
    heads = MultiHead(5, S).apply({"params": params["attention"]}, *sides)
    close(apply(variables, x, y), linear(leaky(heads).mean(0), params["decoder"]))


@pytest.mark.parametrize("name", WEIGHT_REGRESSORS)
def test_leading_dimensions_are_a_loop(name):
    apply, variables = build(name)
    x, y = pairs(2, 2)
    together = apply(variables, x, y)
    assert together.shape == (2, 2, D) and together.dtype == jnp.float32
    for index in np.ndindex(2, 2):
        close(together[index], apply(variables, x[index], y[index]))


@each_model
def test_the_order_of_the_rows_matters_to_the_mlp_alone(name):
    apply, variables = build(name)
    x, y = pairs()
    there, reversed_ = apply(variables, x, y), apply(variables, x[::-1], y[::-1])
    if "mlp" in name:
        assert np.abs(there - reversed_).max() > 1e-3
    else:
        close(reversed_, there)


@each_set_model
def test_a_masked_row_is_an_absent_row(name):
    apply, variables = build(name)
    x, y = pairs(2)
    mask = jnp.arange(N) < jnp.array([[6], [6]])
    masked = apply(variables, jnp.where(mask[..., None], x, 1e3), jnp.where(mask[..., None], y, -1e3), mask)
    close(masked, apply(variables, x[:, :6], y[:, :6]))
    assert np.isfinite(apply(variables, x, y, jnp.zeros_like(mask))).all()


@pytest.mark.parametrize("name", ["mlp", "mlp_target"])
def test_a_masked_row_is_a_row_of_zeros_to_the_mlp(name):
    apply, variables = build(name)
    x, y = pairs()
    kept = jnp.arange(N) < 6
    close(apply(variables, x, y, kept), apply(variables, x * kept[:, None], y * kept[:, None]))


@each_model
def test_an_additive_mask_is_refused(name):
    apply, variables = build(name)
    with pytest.raises(ValueError, match="expected a boolean mask"):
        apply(variables, *pairs(), jnp.zeros(N))


@pytest.mark.parametrize("name", ["mlp", "mlp_target"])
def test_another_number_of_rows_than_the_first_calls_is_refused(name):
    apply, variables = build(name)
    x, y = pairs()
    with pytest.raises(ValueError, match=f"fixed the number of context points at {N}: got {N - 1}"):
        apply(variables, x[..., 1:, :], y[..., 1:, :])


@each_model
def test_gradients_are_finite_and_reach_every_parameter(name):
    _, variables = build(name)
    gradients = jax.jit(jax.grad(lambda v: jnp.sum(MODELS[name].apply(v, *pairs(8)) ** 2)))(variables)
    for path, leaf in jax.tree.leaves_with_path(gradients):
        # The softmax does not see a shift of all keys: the bias of their projection has no gradient.
        unseen = "attention" in str(path) and "'key'" in str(path) and "bias" in str(path)
        assert np.isfinite(leaf).all() and (unseen or np.abs(leaf).max() > 0), path


def test_intention_represents_least_squares():
    """Biases that keep units positive carry a linear map through ReLU: e_K = x, e_V = y, e_P(w) = w, alpha -> 0."""
    d, shift = 2, 100.0
    model = IntentionWeights(latent=2, op=dict(name="intention", alpha=1e-6))
    x = jax.random.normal(jax.random.key(0), (5, N, d))
    w = jax.random.normal(jax.random.key(1), (5, d, 1))
    pick = lambda rows, *kept: jnp.eye(rows)[:, list(kept)]

    def passing(kernel):
        return {
            "layer_0": {"kernel": kernel, "bias": jnp.full(2, shift)},
            "layer_1": {"kernel": jnp.eye(2), "bias": jnp.full(2, -shift)},
        }

    params = {
        "key_encoder": passing(pick(3, 0, 1)),
        "value_encoder": passing(pick(3, 2, 2)),  # y twice: w is [w, w]
        "decoder": passing(pick(4, 0, 2)),  # its first column, flattened by rows
    }
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(model.apply({"params": params}, x, x @ w), w[..., 0], atol=2e-3)


@pytest.mark.parametrize("name", WEIGHT_REGRESSORS)
def test_shapes_are_checked(name):
    model, (x, y) = MODELS[name], pairs()
    with pytest.raises(ValueError, match="x and y differ"):
        jax.eval_shape(model.init, jax.random.key(0), x, y[:-1])
    with pytest.raises(ValueError, match="mask"):
        jax.eval_shape(model.init, jax.random.key(0), x, y, jnp.ones(N - 1, bool))
