"""Multi-head projections around any member of KVQ space."""
import functools
import math
from collections.abc import Callable

import jax
from flax import linen as nn

from kvq_jax.nn.heads import attend
from kvq_jax.nn.mlp import BiasInit, KernelInit, Linear
from kvq_jax.nn.names import choose
from kvq_jax.ops import OPS

# Name -> the factor on the query, of the width of one head and the number of heads.
SCALINGS = {
    "head": lambda width, heads: 1 / math.sqrt(width),  # Vaswani et al. (2017); Flax and Haiku
    "full": lambda width, heads: 1 / math.sqrt(width * heads),  # the published Set Transformer
    "none": lambda width, heads: 1.0,  # the formulas of the Intention paper
}


class MultiHead(nn.Module):
    """Projects query, key and value once for each head, applies `op` in every head, and mixes the heads linearly.

        output = concatenate_h(op(s Q W_q^h, K W_k^h, V W_v^h)) W_o

    with biases, and s set by `scaling`, whatever the op. The heads are a leading dimension of the op, [..., H, N, d], so
    that an option of the op may differ between heads: `alpha` [H]. No width needs to be divisible by anything:
    `head_features` is the width of one head (Haiku's key_size) and the heads' widths add up. With no key left, the heads
    are zero and the output is the bias of the last layer.

    Raises ValueError if a name is unknown, or if out_features is given where there is no output layer.
    """

    num_heads: int
    head_features: int
    op: Callable[..., jax.Array] = OPS["softmax"]  # op(query, key, value, *, mask, **options)
    out_features: int | None = None  # None: num_heads * head_features
    scaling: str = "head"  # a name of SCALINGS
    use_bias: bool = True
    use_output: bool = True  # False: the concatenated heads themselves, without W_o
    kernel_init: KernelInit = "lecun_normal"
    bias_init: BiasInit = "zeros"

    @nn.compact
    def __call__(self, query: jax.Array, key: jax.Array, value: jax.Array, *, mask: jax.Array | None = None,
                 **options) -> jax.Array:
        """query [..., M, a], key [..., N, b], value [..., N, c], mask [..., N] or [..., M, N] -> [..., M, out_features].

        `options` go to the op.
        """
        full_width = self.num_heads * self.head_features
        if not self.use_output and self.out_features is not None:
            raise ValueError("out_features is the width of the output layer: with use_output=False leave it None")
        linear = functools.partial(
            Linear, use_bias=self.use_bias, kernel_init=self.kernel_init, bias_init=self.bias_init)

        scale = choose(SCALINGS, self.scaling, "scaling")(self.head_features, self.num_heads)
        query, key, value = (linear(full_width, name=n)(x) for n, x in (("query", query), ("key", key), ("value", value)))
        output = attend(self.op, self.num_heads, scale * query, key, value, mask=mask, **options)
        if not self.use_output:
            return output
        return linear(self.out_features or full_width, name="out")(output)
