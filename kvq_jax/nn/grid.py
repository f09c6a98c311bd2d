"""Higher-order attention as a module: images and video as sets of their points."""

import math
from collections.abc import Sequence

from flax import linen as nn
from jax import Array

from kvq_jax.nn.block import Block
from kvq_jax.nn.learnable_query import LearnableQueryAttention
from kvq_jax.nn.mixer import Op
from kvq_jax.nn.mlp import BiasInit, KernelInit
from kvq_jax.nn.multihead import MultiHead
from kvq_jax.ops.grid import fold, unfold


class GridAttention(Block):
    """fold(attention(unfold(X))): attention on images (h, w, c) and video (t, h, w, c).

    Higher-order attention of "A mathematical view of attention" (slides). Without query_sizes it is self-attention, and
    the output has the grid of the input. With query_sizes (h', w') the queries are parameters on a grid of that size,
    which is the output's: a smaller grid samples down, a larger one up. Points carry no position.
    """

    num_heads: int = 1
    head_features: int = 64
    op: Op = "softmax"
    out_features: int | None = None  # None: num_heads * head_features
    axes: int = 2  # 2: images, 3: video
    query_sizes: Sequence[int] | None = None  # of the grid of learnt queries; None: self-attention
    scaling: str = "head"
    kernel_init: KernelInit = "lecun_normal"
    bias_init: BiasInit = "zeros"

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """x [..., *sizes, c], mask [..., *sizes], True = take part -> [..., *query_sizes or *sizes, out_features]."""
        rows, sizes = unfold(x, self.axes), x.shape[-self.axes - 1 : -1]
        if mask is not None:
            if mask.shape[-self.axes :] != sizes:
                raise ValueError(f"expected a mask [..., {sizes}] over the points of {x.shape}, got {mask.shape}")
            mask = mask.reshape(*mask.shape[: -self.axes], rows.shape[-2])
        shared = dict(
            num_heads=self.num_heads,
            head_features=self.head_features,
            op=self.op,
            out_features=self.out_features,
            scaling=self.scaling,
            name="heads",
            **self.inits,
        )
        if self.query_sizes is not None:
            pool = LearnableQueryAttention(math.prod(self.query_sizes), **shared)
            return fold(pool(rows, mask=mask), tuple(self.query_sizes))
        return fold(MultiHead(**shared)(rows, rows, rows, mask=mask), sizes)
