"""Any op inside flax.linen.MultiHeadDotProductAttention; softmax is Flax's own attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.nn.adapter import as_attention_fn
from kvq_jax.ops import OPS
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.ops.reference import values

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


@pytest.mark.parametrize("op", ["softmax", "linear", "sigma_intention"])
def test_weights_give_the_output(op):
    """Every op is linear in the values: dropout at a rate of nearly zero changes nothing."""
    query, key, value = draw(2, M, H, D, seed=3), draw(2, N, H, D, seed=4), draw(2, N, H, 3, seed=5)
    attention_fn = as_attention_fn(op)
    dropout = dict(dropout_rng=KEY, dropout_rate=1e-9, deterministic=False)
    dropped, expected = jax.jit(lambda *qkv: (attention_fn(*qkv, **dropout), attention_fn(*qkv)))(query, key, value)
    np.testing.assert_allclose(dropped, expected, rtol=1e-3, atol=1e-3)


def test_no_key_left_gives_zeros_and_low_precision_stays():
    query, key = (draw(2, n, H, D).astype(jnp.bfloat16) for n in (M, N))
    output = as_attention_fn()(query, key, key, mask=jnp.zeros((2, 1, 1, N)))
    assert output.dtype == jnp.bfloat16 and not output.any()


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
    with pytest.raises(ValueError, match="dropout_rng"):
        as_attention_fn()(X[:, :, None], X[:, :, None], X[:, :, None], dropout_rate=0.5, deterministic=False)
