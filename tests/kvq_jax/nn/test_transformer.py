"""The layers of the Transformer's family: against Appendix 8 in NumPy, norms, dropout, sizes, stacks."""

import jax
import numpy as np
import pytest

from kvq_jax.nn.np_former import FORMERS, Former, NPFormerLayer
from kvq_jax.nn.transformer import TransformerLayer
from tests.kvq_jax.nn.drawing import count, draw, run, start
from tests.kvq_jax.ops.reference import REFERENCES, least_squares, least_squares_map, softmax

N, D, HEADS, WIDTH = 5, 6, 2, 4
SMALL = dict(num_heads=HEADS, head_features=WIDTH, embed_features=7, hidden=9)
NP_SMALL = dict(num_heads=HEADS, head_features=WIDTH, context_features=7, hidden=9)


def build(name, **fields):
    return FORMERS[name](**(NP_SMALL if name == "np_former" else SMALL), **fields)


def linear(params, x):
    return x @ np.asarray(params["kernel"], np.float64) + np.asarray(params["bias"], np.float64)


def mlp(params, x):
    return linear(params["layer_1"], np.maximum(linear(params["layer_0"], x), 0))


def norm(params, x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * params["scale"] + params["bias"]


def heads_block(name, params, x):
    """E_Z of Appendix 8 around one op, in the dual form that the paper prints."""
    embedded = np.maximum(linear(params["embed"], x), 0)
    query, key, value = (linear(params["heads"][part], embedded) for part in ("query", "key", "value"))
    outputs = []
    for head, columns in enumerate(np.split(np.arange(HEADS * WIDTH), HEADS)):
        q, k, v = query[:, columns], key[:, columns], value[:, columns]
        if "informer" not in name:
            outputs.append(REFERENCES["softmax" if name == "transformer" else "linear"](q, k, v))
            continue
        alpha = 1 / (1 + np.exp(-np.asarray(params["heads"]["mixer"]["alpha"]["theta"], np.float64)[head]))
        inverse = np.linalg.inv((1 - alpha) * k @ k.T + alpha * np.eye(N))
        outputs.append(softmax(q @ k.T @ inverse) @ v if name == "sigma_informer" else q @ k.T @ inverse @ v)
        primal = (
            softmax(least_squares_map(q, k, 1 - alpha, alpha)) @ v
            if name == "sigma_informer"
            else least_squares(q, k, v, 1 - alpha, alpha)
        )
        np.testing.assert_allclose(outputs[-1], primal, rtol=1e-9)
    return linear(params["heads"]["out"], np.concatenate(outputs, -1))


def np_block(params, x):
    query, key, value = (linear(params[part], x) for part in ("query", "key", "value"))
    outputs = []
    for head, columns in enumerate(np.split(np.arange(HEADS * WIDTH), HEADS)):
        own = jax.tree.map(lambda leaf, head=head: leaf[head], {name: params[name] for name in ("context", "heads")})
        context = mlp(own["context"], np.concatenate([key[:, columns], value[:, columns]], -1).mean(0, keepdims=True))
        pairs = np.concatenate([query[:, columns], np.broadcast_to(context, (N, context.shape[-1]))], -1)
        outputs.append(linear(own["heads"], pairs))
    return linear(params["out"], np.concatenate(outputs, -1))


@pytest.mark.parametrize(
    "name, norm_kind",
    [  # the frame does not depend on the op
        *((name, "post") for name in FORMERS),
        *((name, kind) for name in ("transformer", "np_former") for kind in ("pre", "none")),
    ],
)
def test_layer_is_appendix_8(name, norm_kind):
    x, layer = draw(N, D, seed=1), build(name, norm=norm_kind)
    variables = start(layer, x)
    params, points = variables["params"], np.asarray(x, np.float64)

    def mix(z):
        return np_block(params, z) if name == "np_former" else heads_block(name, params, z)

    if norm_kind == "post":
        hidden = norm(params["norm_mix"], mix(points) + points)
        expected = norm(params["norm_feed_forward"], mlp(params["feed_forward"], hidden) + hidden)
    elif norm_kind == "pre":
        hidden = points + mix(norm(params["norm_mix"], points))
        expected = hidden + mlp(params["feed_forward"], norm(params["norm_feed_forward"], hidden))
    else:
        hidden = points + mix(points)
        expected = hidden + mlp(params["feed_forward"], hidden)
    np.testing.assert_allclose(run(layer, variables, x), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", FORMERS)
def test_sizes_of_appendix_8(name):
    x = np.zeros((10, 1024), np.float32)
    layer = 1024 * 1024 + 1024
    frame = 2 * 2 * 1024 + (1024 * 2048 + 2048) + (2048 * 1024 + 1024)
    heads = 5 * layer  # e_X, and queries, keys, values of four heads of 256, and the last
    block = {
        "informer": heads + 4,
        "sigma_informer": heads + 4,
        # Queries, keys and values; an e_C of 512 features and an e_Z of 256 + 1024 in each head; the last.
        "np_former": 3 * layer + 4 * (512 * 1024 + 1024 + layer + 1280 * 256 + 256) + layer,
    }.get(name, heads)
    assert count(FORMERS[name](), x) == frame + block


def test_informers_start_at_alpha_one_half():
    shapes = jax.eval_shape(lambda: build("informer").init(jax.random.key(0), draw(N, D)))
    assert shapes["params"]["heads"]["mixer"]["alpha"]["theta"].shape == (HEADS,)
    # sigmoid(0) = 0.5 for every head: the fixed ridge of one half.
    layer, x = build("informer"), draw(N, D, seed=1)
    variables = start(layer, x)
    variables["params"]["heads"]["mixer"]["alpha"]["theta"] = np.zeros(HEADS, np.float32)
    fixed = TransformerLayer(op="informer", scaling="none", **SMALL)
    heads = {key: value for key, value in variables["params"]["heads"].items() if key != "mixer"}
    params = variables["params"] | {"heads": heads}
    np.testing.assert_allclose(run(layer, variables, x), run(fixed, {"params": params}, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "sigma_informer", "np_former"])
def test_a_masked_element_is_absent(name):
    x, mask = draw(2, N, D, seed=1), np.array([[1, 0, 1, 1, 0], [0] * 5], bool)
    layer = build(name)
    variables, kept = start(layer, x), [0, 2, 3]
    output = run(layer, variables, x, mask=mask)
    np.testing.assert_allclose(output[0, kept], run(layer, variables, x[0, kept]), rtol=1e-4, atol=1e-4)
    assert np.isfinite(output).all()


@pytest.mark.parametrize("name", ["transformer", "np_former"])
def test_a_mask_for_each_element(name):
    """Elements that see the context only, as targets of a Transformer neural process do: a mask of pairs or of keys."""
    x, layer = draw(2, N, D, seed=1), build(name)
    variables, context = start(layer, x), np.array([1, 1, 1, 0, 0], bool)
    pairs = run(layer, variables, x, mask=np.broadcast_to(context, (2, N, N)))
    np.testing.assert_allclose(pairs, run(layer, variables, x, mask=np.broadcast_to(context, (2, N))), atol=1e-5)
    causal = run(layer, variables, x, mask=np.broadcast_to(np.tril(np.ones((N, N), bool)), (2, N, N)))
    np.testing.assert_allclose(
        causal[:, :2],
        run(layer, variables, x[:, :2], mask=np.broadcast_to(np.tril(np.ones((2, 2), bool)), (2, 2, 2))),
        rtol=1e-4,
        atol=1e-5,
    )


def test_stack_projects_and_drops_inputs():
    x = draw(2, N, 3, seed=1)
    model = Former("transformer", num_layers=2, features=D, input_dropout=0.5, options=SMALL)
    variables = start(model, x)
    assert variables["params"].keys() == {"input", "layer_0", "layer_1"}
    hidden = linear(variables["params"]["input"], x).astype(np.float32)
    for index in range(2):
        hidden = run(build("transformer"), {"params": variables["params"][f"layer_{index}"]}, hidden)
    np.testing.assert_allclose(run(model, variables, x), hidden, rtol=1e-4, atol=1e-5)

    # With no layers, the average over draws of what is dropped is what comes without dropout, and no draw is equal to
    # it.
    model = Former("transformer", num_layers=0, features=D, input_dropout=0.5)
    variables = {"params": {"input": variables["params"]["input"]}}
    keys = jax.random.split(jax.random.key(0), 1000)
    draws = jax.jit(jax.vmap(lambda key: model.apply(variables, x, deterministic=False, rngs={"dropout": key})))(keys)
    np.testing.assert_allclose(draws.mean(0), run(model, variables, x), atol=6 * float(draws.std(0).max()) / 1000**0.5)
    assert float(draws.std(0).min()) > 0.01


def test_dropout_inside_a_layer():
    layer, x = build("transformer", dropout=0.5), draw(N, D, seed=1)
    variables = start(layer, x)
    still = run(layer, variables, x)
    one, two = (layer.apply(variables, x, deterministic=False, rngs={"dropout": jax.random.key(i)}) for i in (0, 1))
    assert not np.allclose(one, two) and not np.allclose(one, still)
    np.testing.assert_allclose(still, run(build("transformer"), variables, x), atol=1e-6)


def test_the_last_norm_of_a_pre_norm_stack():
    model = Former("np_former", num_layers=1, features=D, options={"norm": "pre", **NP_SMALL})
    x = draw(N, 3)
    variables = start(model, x)
    variables["params"]["norm"] = {"scale": np.ones(D, np.float32), "bias": np.zeros(D, np.float32)}
    np.testing.assert_allclose(run(model, variables, x).mean(-1), np.zeros(N), atol=1e-5)


def test_refusals():
    x = draw(N, D)
    for module, match in [
        (TransformerLayer(norm="posst"), "unknown norm 'posst'.*'post'"),
        (TransformerLayer(op="soft"), "op"),
        (Former("informers"), "unknown layer 'informers'.*'informer'"),
        (NPFormerLayer(norm="x"), "norm"),
    ]:
        with pytest.raises(ValueError, match=match):
            count(module, x)
    with pytest.raises(TypeError, match="hiden"):
        count(Former("informer", options={"hiden": 3}), x)
