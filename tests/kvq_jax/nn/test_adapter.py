"""Any op inside the attention of flax.linen and flax.nnx; softmax is Flax's own attention."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

from kvq_jax.models import CMANP, Points
from kvq_jax.nn.adapter import as_attention_fn
from kvq_jax.ops import OPS
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.ops.reference import values
from tests.processes import ROOT

KEY = jax.random.key(0)
H, D, M, N = 2, 4, 3, 5


X, Y = draw(2, M, 6, seed=1), draw(2, N, 7, seed=2)
MASK = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 1, 1]], bool)


def model(attention_fn=nn.dot_product_attention, **fields):
    return nn.MultiHeadDotProductAttention(num_heads=H, qkv_features=H * D, attention_fn=attention_fn, **fields)


VARIABLES = start(model(), X, Y, Y)


@pytest.mark.parametrize(
    "attention_fn",
    [
        as_attention_fn(),
        as_attention_fn(dict(name="softmax", scale=D**-0.5), scaling="none"),
        as_attention_fn(OPS["softmax"]),
    ],
)
@pytest.mark.parametrize(
    "mask",
    [
        None,
        MASK[:, None, None, :],
        MASK[:, None, None, :].astype(np.float32),
        np.tril(np.ones((M, N), bool))[None, None],
        np.tril(np.ones((M, N), bool)),
    ],
)
def test_softmax_is_flax_attention(attention_fn, mask):
    expected = run(model(), VARIABLES, X, Y, Y, mask=mask)
    np.testing.assert_allclose(run(model(attention_fn), VARIABLES, X, Y, Y, mask=mask), expected, atol=2e-6)


@pytest.mark.parametrize("broadcast", [True, False])
def test_dropout_is_that_of_flax(broadcast):
    fields = dict(dropout_rate=0.4, broadcast_dropout=broadcast)
    outputs = [
        model(fn, **fields).apply(VARIABLES, X, Y, Y, deterministic=False, rngs={"dropout": KEY})
        for fn in (nn.dot_product_attention, as_attention_fn())
    ]
    np.testing.assert_allclose(*outputs, atol=2e-6)


def test_stored_weights_are_those_of_flax():
    stored = [
        model(fn).apply(VARIABLES, X, Y, Y, sow_weights=True, mutable="intermediates")[1]
        for fn in (nn.dot_product_attention, as_attention_fn())
    ]
    np.testing.assert_allclose(*(jax.tree.leaves(x)[0] for x in stored), atol=1e-6)


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_a_loop_over_heads(op):
    attention_fn = as_attention_fn(op, scaling="none")
    query, key, value = draw(2, M, H, D, seed=3), draw(2, N, H, D, seed=4), values(op, draw(2, N, H, 3, seed=5))
    each_head = jax.vmap(lambda *head: OPS[op](*head, mask=MASK), in_axes=2, out_axes=2)
    output, expected = jax.jit(lambda *qkv: (attention_fn(*qkv, mask=MASK[:, None, None, :]), each_head(*qkv)))(
        query, key, value
    )
    assert output.shape == (2, M, H, 3)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["softmax", "linear", "sigma_intention", "ls_svm"])
def test_weights_give_the_output(op):
    """Of an op that is affine in the values: dropout at a rate of nearly zero changes nothing."""
    query, key, value = draw(2, M, H, D, seed=3), draw(2, N, H, D, seed=4), draw(2, N, H, 3, seed=5)
    attention_fn = as_attention_fn(op)
    dropout = dict(dropout_rng=KEY, dropout_rate=1e-9, deterministic=False)
    dropped, expected = jax.jit(lambda *qkv: (attention_fn(*qkv, **dropout), attention_fn(*qkv)))(query, key, value)
    np.testing.assert_allclose(dropped, expected, rtol=1e-3, atol=1e-3)


def test_no_key_left_gives_zeros_and_low_precision_stays():
    query, key = (draw(2, n, H, D).astype(jnp.bfloat16) for n in (M, N))
    output = as_attention_fn()(query, key, key, mask=jnp.zeros((2, 1, 1, N)))
    assert output.dtype == jnp.bfloat16 and not output.any()


@pytest.mark.parametrize("op", ["softmax", "linear"])
def test_what_a_masked_value_holds_reaches_no_output_under_dropout(op):
    query, key, value = draw(2, M, H, D, seed=3), draw(2, N, H, D, seed=4), draw(2, N, H, 3, seed=5)
    mask = np.arange(N) < N - 1
    dropout = dict(mask=mask[None, None, None], dropout_rng=KEY, dropout_rate=0.5, deterministic=False)
    run = jax.jit(functools.partial(as_attention_fn(op), **dropout))
    np.testing.assert_array_equal(
        run(query, key, jnp.where(mask[:, None, None], value, jnp.nan)), run(query, key, value)
    )


def test_an_alpha_for_each_head():
    query, key = draw(2, M, H, D, seed=3), draw(2, N, H, D, seed=4)
    together = jax.jit(as_attention_fn(dict(name="intention", alpha=np.array([0.1, 10.0], np.float32))))(
        query, key, key
    )
    for head, alpha in enumerate((0.1, 10.0)):
        alone = jax.jit(as_attention_fn(dict(name="intention", alpha=alpha)))(query, key, key)
        np.testing.assert_allclose(together[:, :, head], alone[:, :, head], rtol=1e-4, atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="unknown op 'atention'.*'intention'"):
        as_attention_fn("atention")
    with pytest.raises(ValueError, match="unknown option of softmax 'scal': did you mean 'scale'"):
        as_attention_fn(dict(name="softmax", scal=1.0))
    with pytest.raises(ValueError, match="without alpha_kind"):
        as_attention_fn(dict(name="intention", alpha_kind="softplus"))
    with pytest.raises(ValueError, match="unknown scaling"):
        as_attention_fn(scaling="heads")
    with pytest.raises(ValueError, match="op 'constrained_intention' has no weights to drop"):
        as_attention_fn("constrained_intention")(*[X[:, :, None]] * 3, dropout_rate=0.5, deterministic=False)
    with pytest.raises(ValueError, match="dropout_rng"):
        as_attention_fn()(X[:, :, None], X[:, :, None], X[:, :, None], dropout_rate=0.5, deterministic=False)


# Attention of flax.nnx.


def nnx_attention(attention_fn, **fields):
    rngs = nnx.Rngs(0, dropout=1)
    return nnx.MultiHeadAttention(H, 6, H * D, decode=False, rngs=rngs, attention_fn=attention_fn, **fields)


@pytest.mark.parametrize("causal", [False, True])
def test_softmax_is_the_attention_of_nnx(causal):
    mask = np.broadcast_to(MASK[:, None, None, :M], (2, H, M, M))  # whole, which is_causal of nnx needs
    call = dict(mask=mask, is_causal=causal, sow_weights=True)
    mine, theirs = (nnx_attention(fn) for fn in (as_attention_fn(), nnx.dot_product_attention))
    np.testing.assert_allclose(mine(X, **call), theirs(X, **call), atol=2e-6)
    weights = [nnx.pop(module, nnx.Intermediate)["attention_weights"].get_value()[0] for module in (mine, theirs)]
    np.testing.assert_allclose(*weights, atol=2e-6)
    seen = np.broadcast_to(np.tri(M, dtype=bool) | (not causal), weights[0].shape)
    assert np.all(weights[0][~seen] == 0) and np.any(weights[0][seen] != 0)
    drops = [nnx_attention(fn, dropout_rate=0.4) for fn in (as_attention_fn(), nnx.dot_product_attention)]
    np.testing.assert_allclose(*(module(X, deterministic=False) for module in drops), atol=2e-6)


def test_attention_of_nnx_trains_on_intention():
    """Gradient descent on what another draw of the module does lowers the error at every step."""
    module, target = nnx_attention(as_attention_fn(dict(name="intention", alpha=1.0))), draw(2, M, 6, seed=5)
    optimizer = nnx.Optimizer(module, optax.sgd(0.01), wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer):
        loss, gradient = nnx.value_and_grad(lambda module: jnp.mean((module(X) - target) ** 2))(module)
        optimizer.update(module, gradient)
        return loss

    losses = [float(step(module, optimizer)) for _ in range(4)]
    assert np.all(np.diff(losses) < 0) and np.isfinite(losses[-1])


def test_the_readmes_lines_of_nnx_compute_what_linen_does():
    """The block of README.md, with a smaller model; it follows the one that makes `context`."""
    (block,) = re.findall(r"```python\n(from flax import nnx\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    sizes = dict(features=8, embed_depth=1, hidden=8, num_heads=2, num_layers=1, num_latents=2, num_block_latents=2)
    names = {"CMANP": functools.partial(CMANP, **sizes), "context": Points(jnp.ones((4, 1)), jnp.ones((4, 1)))}
    exec(block, names)
    params = nnx.to_pure_dict(nnx.state(names["model"], nnx.Param))
    expected = names["CMANP"]().apply({"params": params}, names["context"], names["context"].x)
    np.testing.assert_allclose(names["model"](names["context"], names["context"].x).mean, expected.mean, rtol=1e-5)
    assert names["attention"](draw(1, 3, 8)).shape == (1, 3, 8)
