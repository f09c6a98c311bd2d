"""Conditional neural processes: CNP (Garnelo et al. 2018, arXiv 1807.01613), and CANP, which adds attention."""

import jax
from numpyro.distributions import Distribution

from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.encoder_decoder import Attentive, Streamed, renamings
from kvq_jax.models.points import Points

TORCH_NAMES = renamings(enc1="encoder", enc2="pooling", dec="decoder")


class CNP(Streamed):
    """y* ~ N(decoder(pool_1(context), pool_2(context), x*)), independent at every target.

    The loss is over context and target points, as published. Raises as `EncoderDecoder`.
    """

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> Distribution:
        """A factorised distribution; see NeuralProcess."""
        return predictive.factorised(*self.decode(self.encode(context, target_x), target_x))

    def loss_of_points(self, context: Points, points: Points, *, key: jax.Array | None = None) -> jax.Array:
        """-mean log p over all points, [...]."""
        return -self.log_likelihood(context, points)

    def query(self, memory, target_x, target_mask=None, *, key=None) -> Distribution:
        return predictive.factorised(*self.decode(self.read(memory, target_x), target_x))


class CANP(Attentive, CNP):
    """CNP with r = cross-attention(context, x*) and self-attention over the context before both."""
