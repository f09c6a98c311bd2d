"""Events as vectors."""

from flax import linen as nn
from jax import Array

from kvq_jax.nn import Block, Linear


class MarkEmbedding(Block):
    """A vector for each mark, as the Transformer Hawkes Process has it; with use_gap, plus a linear map of the log gap.

    There the gap is only in the difference of two encoded times.
    """

    num_marks: int
    features: int
    use_gap: bool

    @nn.compact
    def __call__(self, mark: Array, log_gap: Array) -> Array:
        """mark int [...], standardised log gap [...] -> [..., features]."""
        embedded = nn.Embed(self.num_marks, self.features, **self.for_flax, name="mark")(mark)
        if not self.use_gap:
            return embedded
        return embedded + Linear(self.features, use_bias=False, name="gap")(log_gap[..., None])
