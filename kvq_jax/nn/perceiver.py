"""Perceiver attention and its feed-forward, each behind a layer norm, as the published LBANP and CMANP have them.

Parameters have the names of the released code (constant-memory-anp): fn.to_q, fn.to_kv, fn.to_out, fn.net_0, fn.net_2,
norm, norm_context. Feng et al. 2023, CMANP (arXiv 2305.14567), Section 3.2; the released code adds heads, norms and
residuals.
"""

import functools
import math
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.heads import mask_of_heads, merge_heads, split_heads
from kvq_jax.nn.mixer import Mixer, Op
from kvq_jax.nn.mlp import BiasInit, KernelInit, Linear
from kvq_jax.nn.multihead import SCALINGS
from kvq_jax.ops.streaming import Stream

# Name -> which of (x, LN(x)) a branch is added to. 'normalized' is what the released code does.
PRENORM_RESIDUALS = {"normalized": lambda x, normed: normed, "input": lambda x, normed: x}


class PerceiverAttention(Block):
    """concatenate_h(op(s X W_q, C W_k, C W_v)) W_o + b_o, where only the last layer has a bias.

    `to_kv` is one matrix, keys first. To stream, call the parts: `stream` at x, updated with the `pairs` of a context
    that arrives over time; then `output` of what the stream reads.

    `stream` raises ValueError if the op has no state of constant size too.
    """

    features: int = 64
    num_heads: int = 4
    head_features: int = 16
    op: Op = "softmax"
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    kernel_init: KernelInit = "fan_in_uniform"  # PyTorch's
    bias_init: BiasInit = "fan_in_uniform"

    def setup(self):
        linear = functools.partial(Linear, **self.inits)
        width = self.num_heads * self.head_features
        self.to_q = linear(width, use_bias=False)
        self.to_kv = linear(2 * width, use_bias=False)
        self.to_out = linear(self.features)
        self.mixer = Mixer(self.op, (self.num_heads,))

    def __call__(self, x: Array, context: Array, *, mask: Array | None = None) -> Array:
        """x [..., M, a], context [..., N, b], mask [..., N] or [..., M, N], True = take part -> [..., M, features]."""
        key, value = self.pairs(context)
        return self.output(self.mixer(self.heads(x), key, value, mask=mask_of_heads(mask, context)))

    def heads(self, x: Array) -> Array:
        """[..., M, a] -> scaled queries [..., H, M, d]."""
        scale = choose(SCALINGS, self.scaling, "scaling")(self.head_features, self.num_heads)
        return scale * split_heads(self.to_q(x), self.num_heads)

    def pairs(self, context: Array) -> tuple[Array, Array]:
        """[..., N, b] -> keys and values [..., H, N, d]."""
        key, value = jnp.split(self.to_kv(context), 2, axis=-1)
        return split_heads(key, self.num_heads), split_heads(value, self.num_heads)

    def stream(self, x: Array) -> Stream:
        """The op as a stream whose queries are the heads of x [..., M, a]."""
        return self.mixer.stream(self.heads(x))

    def output(self, heads: Array) -> Array:
        """[..., H, M, d] -> [..., M, features]."""
        return self.to_out(merge_heads(heads))


class GEGLU(Block):
    """Linear(a * gelu(g)) with [a, g] = Linear(x): [..., features] -> 2 hidden -> hidden -> [..., features].

    Shazeer 2020 (arXiv 2002.05202), with the exact GELU: 64 -> 256 -> 128 -> 64 in the published models.
    """

    hidden: int = 128
    kernel_init: KernelInit = "fan_in_uniform"
    bias_init: BiasInit = "fan_in_uniform"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [..., features] -> [..., features]."""
        linear = functools.partial(Linear, **self.inits)
        value, gate = jnp.split(linear(2 * self.hidden, name="net_0")(x), 2, axis=-1)
        # GELU as PyTorch has it; jax.nn.gelu's erfc is exact for very negative gates too, at twice the cost.
        return linear(x.shape[-1], name="net_2")(value * gate * (0.5 * (1 + lax.erf(gate * math.sqrt(0.5)))))


class PreNormAttention(Block):
    """f(x', LN(c)) + x' with x' = LN(x), or f(x', x') + x' without a context, where f is a PerceiverAttention.

    The residual of the released code starts from the normalised input x'. residual='input' is the usual pre-norm, + x.
    Raises as `PerceiverAttention`.
    """

    attention: Any = PerceiverAttention  # () -> PerceiverAttention
    cross: bool = False
    residual: str = "normalized"  # a name of PRENORM_RESIDUALS
    epsilon: float = 1e-5

    def setup(self):
        self.fn = self.attention()
        self.norm = self.norm_layer(self.epsilon)
        if self.cross:
            self.norm_context = self.norm_layer(self.epsilon)

    def __call__(self, x: Array, context: Array | None = None, *, mask: Array | None = None) -> Array:
        """x [..., M, features], context [..., N, b] if `cross`, mask as an op's -> [..., M, features]."""
        normed = self.norm(x)
        context = self.norm_context(context) if self.cross else normed
        return self.fn(normed, context, mask=mask) + self._residual(x, normed)

    def stream(self, x: Array) -> Stream:
        """The stream of the op at the queries of x [..., M, features]."""
        return self.fn.stream(self.norm(x))

    def pairs(self, context: Array) -> tuple[Array, Array]:
        """[..., N, b] -> keys and values [..., H, N, d], what the stream takes."""
        return self.fn.pairs(self.norm_context(context))

    def output(self, x: Array, heads: Array) -> Array:
        """What the stream reads [..., H, M, d] -> what `__call__` returns."""
        return self.fn.output(heads) + self._residual(x, self.norm(x))

    def _residual(self, x, normed):
        return choose(PRENORM_RESIDUALS, self.residual, "residual")(x, normed)


class PreNormGEGLU(Block):
    """f(x') + x' with x' = LN(x), where f is a GEGLU; residual='input': + x."""

    feed_forward: Any = GEGLU  # () -> GEGLU
    residual: str = "normalized"
    epsilon: float = 1e-5

    def setup(self):
        self.fn = self.feed_forward()
        self.norm = self.norm_layer(self.epsilon)

    def __call__(self, x: Array) -> Array:
        """x [..., features] -> [..., features]."""
        normed = self.norm(x)
        return self.fn(normed) + choose(PRENORM_RESIDUALS, self.residual, "residual")(x, normed)


class PerceiverBlock(Block):
    """An attention and a GEGLU, each as above. Encoders and decoders of LBANP and EQTNP are stacks of these.

    With `cross` it attends to a context, else to its own input. Raises as `PerceiverAttention`.
    """

    features: int = 64
    num_heads: int = 4
    head_features: int = 16
    hidden: int = 128  # of the GEGLU
    cross: bool = False
    op: Op = "softmax"
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    residual: str = "normalized"  # a name of PRENORM_RESIDUALS
    kernel_init: KernelInit = "fan_in_uniform"
    bias_init: BiasInit = "fan_in_uniform"

    def setup(self):
        attention = functools.partial(
            PerceiverAttention, self.features, self.num_heads, self.head_features, self.op, self.scaling, **self.inits
        )
        self.attention = PreNormAttention(attention, self.cross, self.residual)
        self.feed_forward = PreNormGEGLU(functools.partial(GEGLU, self.hidden, **self.inits), self.residual)

    def __call__(self, x: Array, context: Array | None = None, *, mask: Array | None = None) -> Array:
        """x [..., M, features], context [..., N, b] if `cross`, mask as an op's -> [..., M, features]."""
        return self.feed_forward(self.attention(x, context, mask=mask))
