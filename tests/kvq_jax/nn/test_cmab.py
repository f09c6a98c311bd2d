"""CMAB: against the published formulas in NumPy; in parts, in any order and merged, it gives the same latents."""

import functools
import math

import jax
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.nn.cmab import CMAB
from kvq_jax.nn.perceiver import PerceiverAttention, PreNormAttention
from kvq_jax.ops import OPERATORS, OPS
from tests.kvq_jax.nn.drawing import count, draw, run, start

HEADS, WIDTH = 2, 3
SMALL = dict(num_latents=4, features=6, num_heads=HEADS, head_features=WIDTH, hidden=5)
LATENTS, CONTEXT = draw(3, 6, seed=1), draw(2, 7, 6, seed=2)
erf = np.vectorize(math.erf)


def linear(params, x):
    return x @ np.asarray(params["kernel"], np.float64) + np.asarray(params.get("bias", 0.0), np.float64)


def norm(params, x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * params["scale"] + params["bias"]


def attention(params, x, context=None, residual="normalized"):
    """Pre-norm whose residual is the normalised input; to_kv holds keys, then values."""
    normed = norm(params["norm"], x)
    context = normed if context is None else norm(params["norm_context"], context)
    query, (key, value) = linear(params["fn"]["to_q"], normed), np.split(linear(params["fn"]["to_kv"], context), 2, -1)
    heads = []
    for columns in np.split(np.arange(HEADS * WIDTH), HEADS):
        weights = np.exp(query[:, columns] @ key[:, columns].T / math.sqrt(WIDTH))
        heads.append(weights / weights.sum(-1, keepdims=True) @ value[:, columns])
    return linear(params["fn"]["to_out"], np.concatenate(heads, -1)) + (normed if residual == "normalized" else x)


def feed_forward(params, x, residual="normalized"):
    normed = norm(params["norm"], x)
    a, g = np.split(linear(params["fn"]["net_0"], normed), 2, -1)
    gelu = g * (1 + erf(g / math.sqrt(2))) / 2
    return linear(params["fn"]["net_2"], a * gelu) + (normed if residual == "normalized" else x)


@pytest.mark.parametrize("residual", ["normalized", "input"])
def test_block_is_the_published_one(residual):
    block = CMAB(**SMALL, residual=residual)
    variables = start(block, LATENTS, CONTEXT)
    p, context = variables["params"], CONTEXT[0].astype(np.float64)
    b = attention(p["layer_cross_attn"], p["latents"].astype(np.float64), context, residual)
    b = feed_forward(p["layer_cross_ff"], b, residual)
    b = feed_forward(p["layer_latent_ff"], attention(p["layer_latent_self_attn"], b, None, residual), residual)
    latents = feed_forward(p["cross_ff"], attention(p["cross_attn"], LATENTS.astype(np.float64), b, residual), residual)
    latents = feed_forward(p["latent_ff"], attention(p["latent_self_attn"], latents, None, residual), residual)
    np.testing.assert_allclose(run(block, variables, LATENTS, CONTEXT)[0], latents, rtol=1e-4, atol=1e-4)


def test_parameters_are_the_published_ones():
    """constant-memory-anp: 128 latents of width 64, attention and GEGLU 64 -> 256 -> 128 -> 64, each with its norms."""
    context = np.zeros((10, 64), np.float32)
    attention, feed_forward, norm = 64 * 64 + 64 * 128 + 64 * 64 + 64, 64 * 256 + 256 + 128 * 64 + 64, 2 * 64
    block = 128 * 64 + 4 * (attention + norm + feed_forward + norm) + 2 * norm
    assert count(CMAB(), np.zeros((128, 64), np.float32), context) == block
    # CMANP's total: six blocks, 128 input latents, two embedders, six decoder layers, a norm and a predictor.
    decoder = attention + 2 * norm + feed_forward + norm
    embedders = (2 * 64 + 64) + (64 + 64) + 2 * 3 * (64 * 64 + 64)
    assert 6 * block + 128 * 64 + embedders + 6 * decoder + norm + (64 * 128 + 128 + 128 * 2 + 2) == 1341634
    names = jax.eval_shape(lambda: CMAB().init(jax.random.key(0), context, context))["params"]
    assert names.keys() == {
        "latents",
        "layer_cross_attn",
        "layer_cross_ff",
        "layer_latent_self_attn",
        "layer_latent_ff",
        "cross_attn",
        "cross_ff",
        "latent_self_attn",
        "latent_ff",
    }
    assert names["cross_attn"].keys() == {"fn", "norm", "norm_context"} and names["latent_self_attn"].keys() == {
        "fn",
        "norm",
    }
    assert {k: set(v) for k, v in names["cross_attn"]["fn"].items()} == {
        "to_q": {"kernel"},
        "to_kv": {"kernel"},
        "to_out": {"kernel", "bias"},
    }
    assert names["cross_ff"]["fn"].keys() == {"net_0", "net_2"}


@pytest.mark.parametrize("op", [name for name, row in OPERATORS.items() if row.stream])
def test_cross_attention_in_parts(op):
    """The only part of a block that sees the context: with its norms and projections, and an alpha that is learnt."""
    op = dict(name=op, alpha=0.5, alpha_kind="sigmoid") if OPERATORS[op].alpha else op
    build = functools.partial(PerceiverAttention, 6, HEADS, WIDTH, op)
    module = PreNormAttention(build, cross=True)
    variables = start(module, LATENTS, CONTEXT)
    mask = np.random.default_rng(0).random((2, 7)) < 0.7

    def in_parts(module, latents, context, mask):
        stream, (key, value) = module.stream(latents), module.pairs(context)
        first, last = (
            stream.update(
                stream.init(WIDTH, WIDTH, batch=(2, HEADS)), key[..., part, :], value[..., part, :], mask[:, None, part]
            )
            for part in (slice(0, 3), slice(3, 7))
        )
        return module.output(latents, stream.read(stream.merge(last, first))), module(latents, context, mask=mask)

    parts, full = jax.jit(nn.apply(in_parts, module))(variables, LATENTS, CONTEXT, mask)
    np.testing.assert_allclose(parts, full, rtol=2e-4, atol=2e-4)


def test_in_parts_in_any_order_and_merged():
    # A ridge well above float32's rounding: the op itself must not amplify what the order of a sum changes.
    block = CMAB(**SMALL, op=dict(name="intention", alpha=0.1), cross_op="softmax")
    variables = start(block, LATENTS, CONTEXT)
    mask, order = np.random.default_rng(0).random((2, 7)) < 0.7, np.random.default_rng(1).permutation(7)

    def in_parts(block, context, mask):
        empty = block.init_state((2,))
        one = block.update(block.update(empty, context[:, :3], mask=mask[:, :3]), context[:, 3:5], mask=mask[:, 3:5])
        merged = block.merge(block.update(empty, context[:, 5:], mask=mask[:, 5:]), one)
        assert jax.tree.map(np.shape, merged) == jax.tree.map(np.shape, empty)  # no memory of the number of points
        return block.read(merged, LATENTS)

    parts = jax.jit(nn.apply(in_parts, block))(variables, CONTEXT[:, order], mask[:, order])
    np.testing.assert_allclose(parts, run(block, variables, LATENTS, CONTEXT, mask=mask), rtol=2e-4, atol=2e-4)


def test_point_by_point_in_a_scan():
    block = CMAB(**SMALL)
    variables = start(block, LATENTS, CONTEXT)

    @jax.jit
    def stream(context):
        def step(state, point):
            return block.apply(variables, state, point[:, None], method="update"), None

        state, _ = jax.lax.scan(step, block.apply(variables, (2,), method="init_state"), context.swapaxes(0, 1))
        return block.apply(variables, state, LATENTS, method="read")

    np.testing.assert_allclose(stream(CONTEXT), run(block, variables, LATENTS, CONTEXT), rtol=1e-4, atol=1e-5)


def test_no_context_at_all_is_a_state_too():
    block = CMAB(**SMALL)
    variables = start(block, LATENTS, CONTEXT)
    empty = jax.jit(nn.apply(lambda block: block.read(block.init_state(), LATENTS), block))(variables)
    np.testing.assert_allclose(
        empty, run(block, variables, LATENTS, CONTEXT, mask=np.zeros((2, 7), bool))[1], atol=1e-5
    )
    assert np.isfinite(empty).all()


def test_an_op_without_state_says_so():
    assert "sigma_intention" in OPS and OPERATORS["sigma_intention"].stream is None
    block = CMAB(**SMALL, op="sigma_intention")  # which may still work among latents, with another cross_op
    variables = start(block, LATENTS, CONTEXT)
    with pytest.raises(ValueError, match="sigma_intention has no streaming state: expected one of softmax"):
        jax.eval_shape(nn.apply(lambda block: block.init_state(), block), variables)


def test_refusals():
    with pytest.raises(ValueError, match="unknown residual 'normalised'.*'normalized'"):
        count(CMAB(**SMALL, residual="normalised"), LATENTS, CONTEXT)
