"""Blocks of the Set Transformer (Lee et al. 2019, arXiv 1810.00825): MAB, SAB, ISAB, PMA and rFF, over any op.

The paper and its released code compute different functions. Every difference is a field, and SET_FORMS names the two
sets of values, as in SAB(128, **SET_FORMS["paper"]). The defaults are the code's, which made the published numbers.

| field      | 'paper'                         | 'code' (the default)                                               |
| residual   | 'paper': X + Multihead(X, Y, Y) | 'code': W_q X + heads, on the projected query; any width of X      |
| scaling    | 'head': scores / sqrt(dim / H)  | 'full': scores / sqrt(dim)                                         |
| layer_norm | True                            | False (an option there, which no released run uses)                |
| use_output | True: heads are mixed by W_o    | False: the heads side by side; four linear layers with bias in all |
| use_bias   | False                           | True, of the projections                                           |

The text itself divides scores by sqrt(d) with the whole width d (Section 2.2), as the code does; 'head' is the scaling
of Vaswani et al. 2017, by the width of each head.

A masked element of a set is absent: nobody attends to it. Its own row of an output means nothing, and its contents may
be any finite number. With no element left, the heads are zeros, and only what comes from the queries remains.
"""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.domains import Count, Depth
from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.heads import attend, merge_heads, split_heads
from kvq_jax.nn.mixer import Mixer, Op
from kvq_jax.nn.mlp import MLP, BiasInit, KernelInit, Linear, parameter
from kvq_jax.nn.multihead import SCALINGS
from kvq_jax.ops.streaming import Stream

SET_FORMS = {
    "paper": dict(residual="paper", scaling="head", layer_norm=True, use_output=True, use_bias=False),
    "code": dict(residual="code", scaling="full", layer_norm=False, use_output=False, use_bias=True),
}

# Name -> which of (X, W_q X) the heads are added to.
RESIDUALS = {"paper": lambda x, projected: x, "code": lambda x, projected: projected}


class RFF(MLP):
    """Row-wise feed-forward layers, each linear and followed by ReLU (Lee et al., Section 3.1).

    The same function of every element: [..., N, a] -> [..., N, features[-1]]. Raises as `MLP`.
    """

    activate_final: bool = True


class SetBlock(Block):
    """The fields that all blocks share; see the table above."""

    dim: Count  # width of the output and of the projections
    num_heads: Count = 4
    op: Op = "softmax"
    residual: str = "code"  # a name of RESIDUALS
    scaling: str = "full"  # a name of kvq_jax.nn.SCALINGS
    layer_norm: bool = False
    use_output: bool = False
    use_bias: bool = True
    rff_layers: Depth = 1  # linear + ReLU, each of width dim
    kernel_init: KernelInit = "fan_in_uniform"  # PyTorch's, the released code's
    bias_init: BiasInit = "fan_in_uniform"

    def rff(self, name: str) -> RFF:
        """rFF: [..., N, a] -> [..., N, dim]."""
        return RFF((self.dim,) * self.rff_layers, **self.inits, name=name)

    def mab(self, name: str) -> "MAB":
        """A MAB with the fields of this block."""
        return self.block(MAB, name)

    def block(self, cls: "type[SetBlock]", name: str, **fields: Any) -> "SetBlock":
        """A block of a class, with the fields that all blocks share from this one, and `fields` of its own."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(SetBlock)}
        return cls(**{**shared, **fields, "name": name, "parent": self})


class MAB(SetBlock):
    """Multihead attention block (Lee et al., Section 3.1).

        paper:  H = LayerNorm(X + Multihead(X, Y, Y)),                  MAB(X, Y) = LayerNorm(H + rFF(H))
        code:   O = W_q X + concatenate_h(op(s Q_h, K_h, V_h)),         MAB(X, Y) = O + relu(W O)

    To stream, call the parts: `stream`, updated with the `pairs` of a Y that arrives over time and read at the `heads`
    of any X; then `output`.

    Raises ValueError if num_heads does not divide dim, or X is not dim wide under residual='paper', too; `stream`, if
    the op has no state of constant size for queries yet to come.
    """

    def setup(self):
        linear = functools.partial(Linear, self.dim, use_bias=self.use_bias, **self.inits)
        norm = functools.partial(self.norm_layer, 1e-5) if self.layer_norm else lambda: _same
        self.query, self.key, self.value = linear(), linear(), linear()
        self.mixer = Mixer(self.op, (self.num_heads,))
        self.out = linear() if self.use_output else _same
        self.norm_heads, self.norm_rff = norm(), norm()
        self.row_wise = self.rff("rff")

    def __call__(self, x: Array, y: Array, values: Array | None = None, *, mask: Array | None = None) -> Array:
        """x [..., M, a], y [..., N, b], mask of the elements of y [..., N], or [..., M, N] -> [..., M, dim].

        `values` [..., N, c] are what the values are projected from, where that is not y.
        """
        query, key, value = self.query(x), self.key(y), self.value(y if values is None else values)
        heads = attend(self.mixer, self.num_heads, self._scale() * query, key, value, mask=mask)
        return self.joined(self.skip(x, query), heads)

    def heads(self, x: Array) -> Array:
        """[..., M, a] -> scaled queries [..., H, M, d]."""
        return split_heads(self._scale() * self.query(x), self.num_heads)

    def pairs(self, y: Array, values: Array | None = None) -> tuple[Array, Array]:
        """y [..., N, b], and values [..., N, c] as above -> keys and values [..., H, N, d]."""
        return self.keys(y), self.values(y if values is None else values)

    def keys(self, y: Array) -> Array:
        """[..., N, b] -> [..., H, N, d]."""
        return split_heads(self.key(y), self.num_heads)

    def values(self, rows: Array) -> Array:
        """[..., N, c] -> [..., H, N, d]."""
        return split_heads(self.value(rows), self.num_heads)

    def stream(self) -> Stream:
        """The op as a stream whose queries come at `read`."""
        return self.mixer.stream()

    def output(self, x: Array, heads: Array) -> Array:
        """What the stream reads [..., H, M, d] -> what `__call__` returns."""
        return self.joined(self.skip(x, self.query(x)), merge_heads(heads))

    def skip(self, x: Array, query: Array) -> Array:
        """What the heads are added to, of x [..., M, a] and its projection W_q x: [..., M, dim]."""
        skip = choose(RESIDUALS, self.residual, "residual")(x, query)
        if skip.shape[-1] != self.dim:
            raise ValueError(f"residual='paper' adds {self.dim} features to {x.shape[-1]}: project x, or take 'code'")
        return skip

    def joined(self, skip: Array, heads: Array) -> Array:
        """What `__call__` returns, from what `skip` gave and the heads side by side, [..., M, dim]."""
        hidden = self.norm_heads(skip + self.out(heads))
        return self.norm_rff(hidden + self.row_wise(hidden))

    def _scale(self) -> float:
        return choose(SCALINGS, self.scaling, "scaling")(self.dim // self.num_heads, self.num_heads)


class SAB(SetBlock):
    """Set attention block, SAB(X) = MAB(X, X) (Lee et al., Section 3.1): equivariant, O(N^2). Raises as `MAB`."""

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """x [..., N, a], mask [..., N] or [..., N, N] -> [..., N, dim]."""
        return self.mab("mab")(x, x, mask=mask)


class ISAB(SetBlock):
    """Induced set attention block (Lee et al., Section 3.1): equivariant, O(N m).

        H = MAB(I, X),  ISAB_m(X) = MAB(X, H)

    with m learnt inducing points I [1, m, dim]. They start as in the released code: PyTorch's Xavier uniform bound of a
    tensor of three dimensions, sqrt(6 / (dim (m + 1))), which is not that of a matrix [m, dim]. Raises as `MAB`.
    """

    num_inducing: Count = 32

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        """x [..., N, a], mask [..., N] -> [..., N, dim]."""
        inducing = parameter(self, "inducing", points_init, (1, self.num_inducing, self.dim))[0]
        return self.mab("mab_1")(x, self.mab("mab_0")(inducing, x, mask=mask))


class PMA(SetBlock):
    """Pooling by multihead attention (Lee et al., Section 3.2): invariant.

        PMA_k(Z) = MAB(S, rFF(Z))

    with k learnt seeds S [1, k, dim]. The released code, and the paper's supplement, omit this rFF; use_rff=True has
    it. Raises as `MAB`.
    """

    num_seeds: Count = 1  # rows of the output
    use_rff: bool = False  # whether an rFF comes before the attention

    @nn.compact
    def __call__(self, z: Array, *, mask: Array | None = None) -> Array:
        """z [..., N, a], mask [..., N] -> [..., k, dim]."""
        seeds = parameter(self, "seeds", points_init, (1, self.num_seeds, self.dim))[0]
        if self.use_rff:
            z = self.rff("rff")(z)
        pooled = self.mab("mab")(seeds, z, mask=mask)
        return jnp.broadcast_to(pooled, (*z.shape[:-2], *pooled.shape[-2:]))


# torch.nn.init.xavier_uniform_ of a tensor [1, m, dim]: fan_in is m dim, fan_out is dim.
points_init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=1, out_axis=0)


def _same(x):
    return x
