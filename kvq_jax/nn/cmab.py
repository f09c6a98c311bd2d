"""The Constant Memory Attention Block (Feng et al. 2023, CMANP, arXiv 2305.14567, Section 3.2), over any op."""

import functools
from typing import Any

from flax import linen as nn
from jax import Array

from kvq_jax.nn.block import Block
from kvq_jax.nn.heads import mask_of_heads
from kvq_jax.nn.mixer import Op
from kvq_jax.nn.mlp import BiasInit, KernelInit, parameter
from kvq_jax.nn.perceiver import GEGLU, PerceiverAttention, PreNormAttention, PreNormGEGLU
from kvq_jax.ops.streaming import Stream, prefixes


class CMAB(Block):
    """Encodes a set of any size in latents of fixed size (Section 3.2):

        L_B' = SelfAttention(CrossAttention(L_B, D)),  L_I' = SelfAttention(CrossAttention(L_I, L_B'))

    L_B [num_latents, features] are parameters of the block; L_I are its input latents, those of the block before or the
    model's own. A GEGLU follows each attention. Norms and parameter names are those of the released code.

    Only the first attention sees the set D, at queries that never change. So there are two ways to the same latents:

        latents = block(latents, context)                                  # any op
        state = block.update(block.init_state(), context)                  # in parts, in any order;
        latents = block.read(block.merge(state, other_state), latents)     # any op with a stream

    through `apply(variables, ..., method="update")`. The state is the stream's, for each head: log-normaliser and
    average for softmax, K'K and K'V for Intention. Its size does not depend on the number of points. An update projects
    the new points and compares them with num_latents queries; only `read` computes the latents.

    `cross_op` (None: op) is the op of the first attention, `op` that of all others. An op without a stream, such as
    sigma-Intention, can thus mix the latents of a block that streams. Its stream may forget: with
    cross_op=dict(name="intention", forgetting=0.99) points come in the order of time, and only in parts.

    Raises ValueError for a state of an op that has none too.
    """

    num_latents: int = 128
    features: int = 64
    num_heads: int = 4
    head_features: int = 16
    hidden: int = 128  # of the GEGLU
    op: Op = "softmax"
    cross_op: Op | None = None
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    residual: str = "normalized"  # a name of kvq_jax.nn.perceiver.PRENORM_RESIDUALS
    kernel_init: KernelInit = "fan_in_uniform"
    bias_init: BiasInit = "fan_in_uniform"

    def setup(self):

        def attention(op, **fields):
            build = functools.partial(
                PerceiverAttention, self.features, self.num_heads, self.head_features, op, self.scaling, **self.inits
            )
            return PreNormAttention(build, residual=self.residual, **fields)

        def feed_forward():
            return PreNormGEGLU(functools.partial(GEGLU, self.hidden, **self.inits), residual=self.residual)

        start, shape = nn.initializers.normal(1.0), (self.num_latents, self.features)
        self.latents = parameter(self, "latents", start, shape)
        cross_op = self.op if self.cross_op is None else self.cross_op
        self.layer_cross_attn, self.layer_cross_ff = attention(cross_op, cross=True), feed_forward()
        self.layer_latent_self_attn, self.layer_latent_ff = attention(self.op), feed_forward()
        self.cross_attn, self.cross_ff = attention(self.op, cross=True), feed_forward()
        self.latent_self_attn, self.latent_ff = attention(self.op), feed_forward()

    def __call__(self, latents: Array, context: Array, *, mask: Array | None = None) -> Array:
        """latents L_I [..., m, features], context D [..., N, b], mask [..., N], True = take part -> L_I' like L_I.

        Leading dimensions broadcast: latents [m, features] may serve a batch of contexts.
        """
        return self._encode(latents, self.layer_cross_attn(self.latents, context, mask=mask))

    def init_state(self, batch: tuple[int, ...] = ()) -> Any:
        """The state of no context, with leading dimensions `batch`."""
        batch = (*batch, self.num_heads)
        return self._stream().init(self.head_features, self.head_features, batch=batch, dtype=self.latents.dtype)

    def update(self, state: Any, context: Array, *, mask: Array | None = None) -> Any:
        """The state after more of the context [..., N, b], of which mask [..., N] takes part."""
        key, value = self.layer_cross_attn.pairs(context)
        return self._stream().update(state, key, value, mask_of_heads(mask, context))

    def merge(self, state: Any, other: Any) -> Any:
        """The state of both contexts; associative; commutative too, unless the stream forgets: `other` is the later."""
        return self._stream().merge(state, other)

    def prefixes(self, state: Any, context: Array, *, mask: Array | None = None) -> Any:
        """The states after 1, 2, ..., N more points of the context [..., N, b], along a new first axis.

        What causal training needs: kvq_jax.ops.streaming.prefixes. `read` takes them all at once.
        """
        key, value = self.layer_cross_attn.pairs(context)
        return prefixes(self._stream(), state, key, value, mask_of_heads(mask, context))

    def read(self, state: Any, latents: Array) -> Array:
        """The latents L_I' [..., m, features] of all context in the state, from L_I [..., m, features]."""
        return self._encode(latents, self.layer_cross_attn.output(self.latents, self._stream().read(state)))

    def _stream(self) -> Stream:
        return self.layer_cross_attn.stream(self.latents)

    def _encode(self, latents: Array, block: Array) -> Array:
        """L_I and CrossAttention(L_B, D) -> L_I'."""
        block = self.layer_cross_ff(block)
        block = self.layer_latent_ff(self.layer_latent_self_attn(block))
        latents = self.cross_ff(self.cross_attn(latents, block))
        return self.latent_ff(self.latent_self_attn(latents))
