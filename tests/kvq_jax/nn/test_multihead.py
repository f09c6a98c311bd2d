"""MultiHead: against Flax's attention and against a loop over heads; masks, leading dimensions, every op."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.nn import MultiHead
from kvq_jax.ops import OPERATORS, OPS
from tests.kvq_jax.ops.reference import LABELS

KEY = jax.random.key(0)
M, N, H, D = 5, 7, 3, 4
# MultiHead projects values to real numbers, which are no labels.
every_op = pytest.mark.parametrize("op", [op for op in OPS if op not in LABELS])


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def sets(*leading):
    return normal(*leading, M, 6, seed=1), normal(*leading, N, 8, seed=2), normal(*leading, N, 2, seed=3)


def options_of(op):
    return {"alpha": 0.1} if OPERATORS[op].alpha else {}


def build(op="softmax", **fields):
    """A compiled MultiHead and its variables."""
    op = dict(name=op, **options_of(op)) if isinstance(op, str) else op
    model = MultiHead(H, D, op, **{"out_features": 9, "bias_init": "normal", **fields})
    return jax.jit(model.apply), jax.jit(model.init)(KEY, *sets())


def test_equals_flax_attention_with_the_same_parameters():
    apply, variables = build()
    params = variables["params"]
    heads = {
        name: {"kernel": params[name]["kernel"].reshape(-1, H, D), "bias": params[name]["bias"].reshape(H, D)}
        for name in ("query", "key", "value")
    }
    out = {"kernel": params["out"]["kernel"].reshape(H, D, 9), "bias": params["out"]["bias"]}
    flax_model = nn.MultiHeadDotProductAttention(num_heads=H, qkv_features=H * D, out_features=9)
    query, key, value = sets(2)
    mask = jax.random.bernoulli(KEY, 0.6, (2, N)).at[:, 0].set(True)
    expected = flax_model.apply({"params": heads | {"out": out}}, query, key, value, mask=mask[:, None, None, :])
    np.testing.assert_allclose(apply(variables, query, key, value, mask=mask), expected, atol=2e-6)


@every_op
@pytest.mark.parametrize(
    "scaling, scale", [("head", 1 / math.sqrt(D)), ("full", 1 / math.sqrt(H * D)), ("none", 1.0), ("map", math.sqrt(D))]
)
def test_is_a_loop_over_heads(op, scaling, scale):
    apply, variables = build(op, scaling=scaling)
    query, key, value = sets()
    mask = jnp.arange(N) < N - 2
    params, outputs = variables["params"], []
    for head in range(H):
        columns = slice(head * D, (head + 1) * D)
        q, k, v = (
            x @ params[name]["kernel"][:, columns] + params[name]["bias"][columns]
            for name, x in (("query", query), ("key", key), ("value", value))
        )
        outputs.append(jax.jit(OPS[op])(scale * q, k, v, mask=mask, **options_of(op)))
    expected = jnp.concatenate(outputs, axis=-1) @ params["out"]["kernel"] + params["out"]["bias"]
    actual = apply(variables, query, key, value, mask=mask)
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)


@every_op
def test_leading_dimensions_are_a_loop(op):
    apply, variables = build(op)
    query, key, value = sets(2, 3)
    mask = jax.random.bernoulli(KEY, 0.6, (2, 3, N))
    batched = apply(variables, query, key, value, mask=mask)
    assert batched.shape == (2, 3, M, 9)
    for index in np.ndindex(2, 3):
        alone = apply(variables, query[index], key[index], value[index], mask=mask[index])
        np.testing.assert_allclose(batched[index], alone, rtol=2e-4, atol=2e-4)


@every_op
def test_masked_is_absent_and_order_does_not_matter(op):
    apply, variables = build(op)
    query, key, value = sets()
    mask = jnp.array([True, False, True, True, False, True, False])
    kept = np.flatnonzero(mask)[::-1]
    masked = apply(variables, query, key, value, mask=mask)
    deleted = apply(variables, query, key[kept], value[kept])
    np.testing.assert_allclose(masked, deleted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("op", ["softmax", "linear", "uniform"])
def test_a_mask_for_each_query(op):
    apply, variables = build(op)
    query, key, value = sets(2)
    mask = jax.random.bernoulli(KEY, 0.5, (2, M, N))
    each = apply(variables, query, key, value, mask=mask)
    for row in range(M):
        alone = apply(variables, query[:, row : row + 1], key, value, mask=mask[:, row])
        np.testing.assert_allclose(each[:, row : row + 1], alone, atol=1e-5)


@every_op
def test_no_key_left_gives_the_last_bias(op):
    apply, variables = build(op)
    output = apply(variables, *sets(), mask=jnp.zeros(N, bool))
    np.testing.assert_allclose(output, jnp.broadcast_to(variables["params"]["out"]["bias"], (M, 9)), atol=1e-6)


@every_op
def test_gradients_are_finite_also_with_nothing_left(op):
    apply, variables = build(op)
    mask = jnp.zeros((2, N), bool).at[0, :3].set(True)

    def loss(variables):
        return jnp.sum(jnp.square(apply(variables, *sets(2), mask=mask)))

    gradients = jax.tree.leaves(jax.jit(jax.grad(loss))(variables))
    assert all(bool(jnp.isfinite(x).all()) for x in gradients)


def test_an_alpha_for_each_head():
    alphas = jnp.array([0.1, 1.0, 10.0])
    fields = dict(use_output=False, out_features=None)
    apply, variables = build(dict(name="intention", alpha=alphas), **fields)
    together = apply(variables, *sets(2))
    for head, alpha in enumerate(alphas):
        alone = build(dict(name="intention", alpha=float(alpha)), **fields)[0](variables, *sets(2))
        columns = slice(head * D, (head + 1) * D)
        np.testing.assert_allclose(together[..., columns], alone[..., columns], rtol=1e-4, atol=1e-5)


def test_widths_and_parameter_counts():
    projections = (6 + 8 + 2 + 3) * H * D
    for fields, width, count in [
        (dict(), 9, projections + H * D * 9 + 9),
        (dict(out_features=None), H * D, projections + (H * D + 1) * H * D),
        (dict(out_features=None, use_output=False), H * D, projections),
        (dict(use_bias=False), 9, projections - 3 * H * D + H * D * 9),
    ]:
        model = MultiHead(H, D, **{"out_features": 9, **fields})
        output, variables = jax.eval_shape(model.init_with_output, KEY, *sets())
        assert output.shape == (M, width)
        assert sum(x.size for x in jax.tree.leaves(variables)) == count


def test_bfloat16_inputs():
    apply, variables = build()
    halves = [x.astype(jnp.bfloat16) for x in sets()]
    output = apply(variables, *halves)
    assert output.dtype == jnp.float32
    np.testing.assert_allclose(output, apply(variables, *sets()), atol=0.1)


def test_refusals():
    with pytest.raises(ValueError, match="unknown scaling 'heads'.*'head'"):
        build(scaling="heads")
    with pytest.raises(ValueError, match="use_output"):
        build(use_output=False)
