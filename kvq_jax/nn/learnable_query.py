"""Attention with learnable queries: a set of any size in, a set of fixed size out."""

import functools

from flax import linen as nn
from jax import Array

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.heads import attend
from kvq_jax.nn.mixer import Mixer, Op
from kvq_jax.nn.mlp import BiasInit, KernelInit, Linear, parameter
from kvq_jax.nn.multihead import SCALINGS


class LearnableQueryAttention(Block):
    """O = op(s Q, X W_k, X W_v) W_o in every head, where the queries Q are parameters.

    Learnable queries of "A mathematical view of attention" (slides), with rows as points. The output has one row for
    each query and does not depend on the order of X. One head without output layer, biases and scaling (use_output,
    use_bias=False, scaling="none") is the slides' form. With no element left, the heads are zero and the output is the
    bias of W_o.

    Raises ValueError if out_features is given without an output layer too.
    """

    num_queries: int
    num_heads: int = 1
    head_features: int = 64
    op: Op = "softmax"
    out_features: int | None = None  # None: num_heads * head_features
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    use_bias: bool = True
    use_output: bool = True
    query_init: nn.initializers.Initializer = nn.initializers.normal(1.0)  # of the queries
    kernel_init: KernelInit = "lecun_normal"
    bias_init: BiasInit = "zeros"

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """x [..., N, a], mask [..., N], or [..., num_queries, N] -> [..., num_queries, out_features]."""
        if not self.use_output and self.out_features is not None:
            raise ValueError("out_features is the width of the output layer: with use_output=False leave it None")
        width = self.num_heads * self.head_features
        linear = functools.partial(Linear, use_bias=self.use_bias, **self.inits)
        scale = choose(SCALINGS, self.scaling, "scaling")(self.head_features, self.num_heads)
        query = scale * parameter(self, "queries", self.query_init, (self.num_queries, width))
        key, value = linear(width, name="key")(x), linear(width, name="value")(x)
        mixer = Mixer(self.op, (self.num_heads,), name="mixer")
        heads = attend(mixer, self.num_heads, query, key, value, mask=mask)
        return linear(self.out_features or width, name="out")(heads) if self.use_output else heads
