"""Multi-head projections around any member of KVQ space."""

import functools
import math

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.cache import put
from kvq_jax.nn.heads import attend
from kvq_jax.nn.mixer import Mixer, Op
from kvq_jax.nn.mlp import BiasInit, KernelInit, Linear

# Name -> the factor on the query, of the width of one head and the number of heads.
SCALINGS = {
    "head": lambda width, heads: 1 / math.sqrt(width),  # Vaswani et al. (2017); Flax and Haiku
    "full": lambda width, heads: 1 / math.sqrt(width * heads),  # the published Set Transformer
    "none": lambda width, heads: 1.0,  # the formulas of the Intention paper
    "map": lambda width, heads: math.sqrt(width),  # its Appendix 9: entries of Q K^+ then have variance 1
}


class MultiHead(Block):
    """Projects query, key and value once for each head, applies `op` in every head, and mixes the heads linearly.

        output = concatenate_h(op(s Q W_q^h, K W_k^h, V W_v^h)) W_o

    with biases; `scaling` sets s for every op. The heads are a leading dimension of the op, [..., H, N, d], and each
    has its own learnt alpha. `head_features` is the width of one head (Haiku's key_size), so that no width needs to be
    divisible by the number of heads. With no key left, the heads are zero and the output is the bias of the last layer.

    Keys may also arrive in parts, as in decoding with flax.linen.MultiHeadDotProductAttention. With `position`,
    projected keys and values are written into rows position, position + 1, ... of the variables cached_key and
    cached_value, which have as many rows as the mask. The op sees all rows that the mask keeps.

    Raises ValueError if out_features is given without an output layer, or for a position without a mask, too.
    """

    num_heads: int
    head_features: int
    op: Op = "softmax"  # see kvq_jax.nn.Mixer
    out_features: int | None = None  # None: num_heads * head_features
    scaling: str = "head"  # a name of SCALINGS
    use_bias: bool = True
    use_output: bool = True  # False: the concatenated heads themselves, without W_o
    kernel_init: KernelInit = "lecun_normal"
    bias_init: BiasInit = "zeros"
    projection_init: KernelInit | None = None  # of query, key and value; None: kernel_init

    @nn.compact
    def __call__(
        self, query: Array, key: Array, value: Array, *, mask: Array | None = None, position: Array | int | None = None
    ) -> Array:
        """query [..., M, a], key [..., N, b], value [..., N, c], mask [..., N] or [..., M, N] -> [..., M, out]."""
        full_width = self.num_heads * self.head_features
        if not self.use_output and self.out_features is not None:
            raise ValueError("out_features is the width of the output layer: with use_output=False leave it None")
        linear = functools.partial(Linear, use_bias=self.use_bias, bias_init=self.bias_init)
        projection = functools.partial(linear, full_width, kernel_init=self.projection_init or self.kernel_init)

        scale = choose(SCALINGS, self.scaling, "scaling")(self.head_features, self.num_heads)
        query, key, value = (projection(name=n)(x) for n, x in (("query", query), ("key", key), ("value", value)))
        if position is not None:
            if mask is None:
                raise ValueError("a position needs a mask: it says how many rows the cache has, and which are there")
            key = self._cached("cached_key", key, mask.shape[-1], position)
            value = self._cached("cached_value", value, mask.shape[-1], position)
        mixer = Mixer(self.op, (self.num_heads,), name="mixer")
        output = attend(mixer, self.num_heads, scale * query, key, value, mask=mask)
        if not self.use_output:
            return output
        return linear(self.out_features or full_width, kernel_init=self.kernel_init, name="out")(output)

    def _cached(self, name: str, rows: Array, size: int, position: Array | int) -> Array:
        """All `size` rows of a variable, after the new ones are written at `position`."""
        cache = self.variable("cache", name, lambda: jnp.zeros((*rows.shape[:-2], size, rows.shape[-1]), rows.dtype))
        cache.value = put(cache.value, rows, position, -2)
        return cache.value
