"""MultiHead: against Flax's attention and against a loop over heads; masks, leading dimensions, every op."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.nn import MultiHead
from kvq_jax.ops import OPERATORS, OPS
from tests.kvq_jax.nn.drawing import draw, run, start
from tests.kvq_jax.ops.reference import LABELS

KEY = jax.random.key(0)
M, N, H, D = 5, 7, 3, 4
# MultiHead projects values to real numbers, which are no labels.
every_op = pytest.mark.parametrize("op", [op for op in OPS if op not in LABELS])


def sets(*leading):
    return draw(*leading, M, 6, seed=1), draw(*leading, N, 8, seed=2), draw(*leading, N, 2, seed=3)


def some(*shape):
    """A mask."""
    return np.random.default_rng(0).random(shape) < 0.6


def options_of(op):
    return {"alpha": 0.1} if OPERATORS[op].alpha else {}


@functools.cache
def start_of_all():
    """Variables for every op and scaling."""
    return start(MultiHead(H, D, out_features=9), *sets())


def build(op="softmax", **fields):
    """A compiled MultiHead and its variables."""
    model = MultiHead(H, D, dict(name=op, **options_of(op)), **{"out_features": 9, **fields})
    return functools.partial(run, model), start_of_all()


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
    mask = some(2, N) | (np.arange(N) == 0)
    expected = run(flax_model, {"params": heads | {"out": out}}, query, key, value, mask=mask[:, None, None, :])
    np.testing.assert_allclose(apply(variables, query, key, value, mask=mask), expected, atol=2e-6)


@every_op
@pytest.mark.parametrize(
    "scaling, scale", [("head", 1 / math.sqrt(D)), ("full", 1 / math.sqrt(H * D)), ("none", 1.0), ("map", math.sqrt(D))]
)
def test_is_a_loop_over_heads(op, scaling, scale):
    apply, variables = build(op, scaling=scaling)
    query, key, value = sets()
    mask = np.arange(N) < N - 2
    params, outputs = variables["params"], []
    for head in range(H):
        columns = slice(head * D, (head + 1) * D)
        q, k, v = (
            x @ params[name]["kernel"][:, columns] + params[name]["bias"][columns]
            for name, x in (("query", query), ("key", key), ("value", value))
        )
        outputs.append(jax.jit(OPS[op])(scale * q, k, v, mask=mask, **options_of(op)))
    expected = np.concatenate(outputs, axis=-1) @ params["out"]["kernel"] + params["out"]["bias"]
    actual = apply(variables, query, key, value, mask=mask)
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)


@every_op
def test_leading_dimensions_are_a_loop(op):
    apply, variables = build(op)
    query, key, value = sets(2, 3)
    mask = some(2, 3, N)
    batched = np.asarray(apply(variables, query, key, value, mask=mask))
    assert batched.shape == (2, 3, M, 9)
    for index in np.ndindex(2, 3):
        alone = apply(variables, query[index], key[index], value[index], mask=mask[index])
        np.testing.assert_allclose(batched[index], alone, rtol=2e-4, atol=2e-4)


@every_op
def test_masked_is_absent_and_order_does_not_matter(op):
    apply, variables = build(op)
    query, key, value = sets()
    mask = np.array([True, False, True, True, False, True, False])
    kept = np.flatnonzero(mask)[::-1]
    masked = apply(variables, query, key, value, mask=mask)
    deleted = apply(variables, query, key[kept], value[kept])
    np.testing.assert_allclose(masked, deleted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("op", ["softmax", "linear", "uniform"])
def test_a_mask_for_each_query(op):
    apply, variables = build(op)
    query, key, value = sets(2)
    mask = some(2, M, N)
    each = np.asarray(apply(variables, query, key, value, mask=mask))
    for row in range(M):
        alone = apply(variables, query[:, row : row + 1], key, value, mask=mask[:, row])
        np.testing.assert_allclose(each[:, row : row + 1], alone, atol=1e-5)


@every_op
def test_no_key_left_gives_the_last_bias(op):
    apply, variables = build(op)
    output = apply(variables, *sets(), mask=np.zeros(N, bool))
    np.testing.assert_allclose(output, np.broadcast_to(variables["params"]["out"]["bias"], (M, 9)), atol=1e-6)


@every_op
def test_gradients_are_finite_also_with_nothing_left(op):
    apply, variables = build(op)
    mask = np.array([[True] * 3 + [False] * (N - 3), [False] * N])

    def loss(variables):
        return jnp.sum(jnp.square(apply(variables, *sets(2), mask=mask)))

    gradients = jax.tree.leaves(jax.jit(jax.grad(loss))(variables))
    assert all(np.isfinite(x).all() for x in gradients)


def test_an_alpha_for_each_head():
    alphas = [0.1, 1.0, 10.0]
    variables = {"params": {k: v for k, v in start_of_all()["params"].items() if k != "out"}}

    def heads(alpha):
        model = MultiHead(H, D, dict(name="intention", alpha=alpha), use_output=False)
        return np.asarray(jax.jit(model.apply)(variables, *sets(2)))

    together = heads(jnp.array(alphas))
    for head, alpha in enumerate(alphas):
        columns = slice(head * D, (head + 1) * D)
        np.testing.assert_allclose(together[..., columns], heads(alpha)[..., columns], rtol=1e-4, atol=1e-5)


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
        MultiHead(H, D, scaling="heads").init(KEY, *sets())
    with pytest.raises(ValueError, match="use_output"):
        MultiHead(H, D, out_features=9, use_output=False).init(KEY, *sets())
