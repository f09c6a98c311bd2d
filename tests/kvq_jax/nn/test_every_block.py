"""What every block owes: permutation laws and absent masked elements for every op; jit, vmap, grad, bfloat16."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kvq_jax.nn.cmab import CMAB
from kvq_jax.nn.learnable_query import LearnableQueryAttention
from kvq_jax.nn.multihead import MultiHead
from kvq_jax.nn.np_former import NPFormerLayer
from kvq_jax.nn.set_transformer import ISAB, MAB, PMA, SAB, SET_FORMS
from kvq_jax.nn.transformer import TransformerLayer
from kvq_jax.ops import OPS
from tests.kvq_jax.nn.drawing import draw
from tests.kvq_jax.ops.reference import LABELS

N, D = 6, 4
TOLERANCE = 1e-4
FIXED = draw(3, D, seed=7)  # queries or latents that do not move with the set
PAPER = SET_FORMS["paper"]


class Block(NamedTuple):
    build: Callable[[str], nn.Module]  # op -> module
    call: Callable  # (module, x [..., N, D], mask) -> output
    equivariant: bool  # else invariant


def on_set(module, x, mask):
    return module(x, mask=mask)


def on_fixed(module, x, mask):
    return module(FIXED, x, mask=mask)


BLOCKS = {
    "multi_head": Block(lambda op: MultiHead(2, 3, op), lambda m, x, mask: m(x, x, x, mask=mask), True),
    "mab": Block(lambda op: MAB(D, 2, op), on_fixed, False),
    "sab": Block(lambda op: SAB(D, 2, op), on_set, True),
    "isab": Block(lambda op: ISAB(D, 2, op, num_inducing=3, **PAPER), on_set, True),
    "pma": Block(lambda op: PMA(D, 2, op, num_seeds=2, use_rff=True, **PAPER), on_set, False),
    "layer": Block(
        lambda op: TransformerLayer(hidden=5, num_heads=2, head_features=3, op=op, norm="pre"), on_set, True
    ),
    "np_former": Block(
        lambda op: NPFormerLayer(hidden=5, num_heads=2, head_features=4, context_features=3), on_set, True
    ),
    "learnable_query": Block(lambda op: LearnableQueryAttention(3, 2, 3, op), on_set, False),
    "cmab": Block(lambda op: CMAB(2, D, 2, 3, 5, "softmax", op), on_fixed, False),
}
# Every op in one block, softmax in every block, and two blocks that solve; the NP-Former has no op to choose. Blocks
# project values to real numbers, which are no labels.
CASES = [
    *(("learnable_query", op) for op in OPS if op not in LABELS),
    *((name, "softmax") for name in BLOCKS if name != "learnable_query"),
    ("sab", "intention"),
    ("isab", "sigma_intention"),
]


def prepare(name, op):
    """The block as call(variables, x, mask), and variables."""
    block = BLOCKS[name]
    module = block.build(op)
    x, mask = draw(N, D), np.ones(N, bool)
    shapes = jax.eval_shape(nn.init(block.call, module), jax.random.key(0), x, mask)
    leaves, tree = jax.tree.flatten(shapes)
    return nn.apply(block.call, module), tree.unflatten([draw(*x.shape, seed=i) for i, x in enumerate(leaves)])


@pytest.mark.parametrize("name, op", CASES)
def test_order_does_not_matter_and_a_masked_element_is_absent(name, op):
    call, variables = prepare(name, op)
    x, mask = draw(N, D, seed=1), np.array([1, 1, 0, 1, 0, 1], bool)
    order = np.random.default_rng(0).permutation(N)
    garbage = np.where(mask[:, None], x, 100 * draw(N, D, seed=2))
    batch = np.stack([x, x[order], garbage, x]), np.stack([mask, mask[order], mask, np.zeros(N, bool)])
    output, moved, spoilt, nothing = np.asarray(jax.jit(call)(variables, *batch))
    if BLOCKS[name].equivariant:
        np.testing.assert_allclose(moved, output[order], rtol=1e-3, atol=TOLERANCE)
        np.testing.assert_allclose(spoilt[mask], output[mask], rtol=1e-3, atol=TOLERANCE)
    else:
        np.testing.assert_allclose(moved, output, rtol=1e-3, atol=TOLERANCE)
        np.testing.assert_allclose(spoilt, output, rtol=1e-3, atol=TOLERANCE)
    assert np.isfinite(output).all() and np.isfinite(nothing).all()
    assert not np.allclose(output, nothing, atol=100 * TOLERANCE)  # the set does matter


@pytest.mark.parametrize("name, op", [*((name, "softmax") for name in BLOCKS), ("sab", "intention")])
def test_jit_vmap_grad_bfloat16_and_leading_axes(name, op):
    call, variables = prepare(name, op)
    x, mask = draw(3, N, D, seed=1), np.array([[1, 1, 0, 1, 0, 1], [0] * N, [1] * N], bool)

    def loss(variables, x, mask):
        output = call(variables, x, mask)
        return jnp.square(output).sum(), output

    @jax.jit
    def everything(variables, x, mask):
        (_, alone), gradients = jax.vmap(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True), (None, 0, 0))(
            variables, x, mask
        )
        return alone, gradients, call(variables, x[None].astype(jnp.bfloat16), mask[None])

    alone, gradients, together = everything(variables, x, mask)
    assert together.shape == (1, *alone.shape) and together.dtype == jnp.float32
    np.testing.assert_allclose(together[0], alone, atol=0.05 * np.abs(alone).max())
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(gradients[1]))
