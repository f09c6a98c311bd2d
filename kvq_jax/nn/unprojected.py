"""An operator in the place of a multihead attention block, with nothing around it."""

import jax.numpy as jnp
from jax import Array

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.heads import attend
from kvq_jax.nn.mixer import Mixer, Op
from kvq_jax.nn.multihead import SCALINGS
from kvq_jax.ops.streaming import Stream


class Unprojected(Block):
    """The op itself where a MAB stands, as one head: no projections, residual, norm or layer after it.

    Uniform, Laplace and dot-product attention of the ANP paper (Kim et al. 2019, arXiv 1901.05761). Raises ValueError
    for an unknown scaling too.
    """

    op: Op = "softmax"
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS

    def setup(self):
        self.mixer = Mixer(self.op, (1,))

    def __call__(self, x: Array, y: Array, values: Array, *, mask: Array | None = None) -> Array:
        """x [..., M, d], y [..., N, d], values [..., N, c], mask [..., N] or [..., M, N] -> [..., M, c]."""
        return attend(self.mixer, 1, self._scale(x) * x, y, values, mask=mask)

    def heads(self, x: Array) -> Array:
        """[..., M, d] -> scaled queries [..., 1, M, d]; this and what follows as in MAB."""
        return jnp.expand_dims(self._scale(x) * x, -3)

    def pairs(self, y: Array, values: Array) -> tuple[Array, Array]:
        """[..., N, d], [..., N, c] -> keys [..., 1, N, d] and values [..., 1, N, c]."""
        return self.keys(y), self.values(values)

    def keys(self, y: Array) -> Array:
        """[..., N, d] -> [..., 1, N, d]."""
        return jnp.expand_dims(y, -3)

    def values(self, rows: Array) -> Array:
        """[..., N, c] -> [..., 1, N, c]."""
        return jnp.expand_dims(rows, -3)

    def stream(self) -> Stream:
        """The op's stream."""
        return self.mixer.stream()

    def output(self, x: Array, heads: Array) -> Array:
        """What the op gave to the one head [..., 1, M, c] -> [..., M, c]."""
        return jnp.squeeze(heads, -3)

    def _scale(self, x):
        return choose(SCALINGS, self.scaling, "scaling")(x.shape[-1], 1)
