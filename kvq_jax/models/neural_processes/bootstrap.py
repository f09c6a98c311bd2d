"""Bootstrapping neural processes: BNP and BANP (Lee et al. 2020, arXiv 2008.02956)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.distributions import Distribution

from kvq_jax.domains import Count
from kvq_jax.models.neural_processes import conditional, predictive
from kvq_jax.models.neural_processes.base import need_key
from kvq_jax.models.neural_processes.encoder_decoder import Attentive, EncoderDecoder
from kvq_jax.models.points import Points, whole_mask
from kvq_jax.nn import set_mean
from kvq_jax.nn.np_encoders import resample

TORCH_NAMES = conditional.TORCH_NAMES


class Draws(NamedTuple):
    """Which of the N context points fills each of N places, for each of K bootstraps: indices [K, ..., N]."""

    points: jax.Array  # for the first resampling, of pairs (x, y)
    residuals: jax.Array  # for the second, of residuals


def draw(key: jax.Array, samples: int, context: Points) -> Draws:
    """Indices with replacement, uniform over the context points that are there."""
    shape = context.x.shape[:-1]
    mask = jnp.broadcast_to(whole_mask(context), shape)
    count = predictive.count(mask, shape[-1])[..., None]
    present = jnp.argsort(~mask, axis=-1, stable=True)  # the points that are there, in order, come first

    def indices(key):
        ranks = jax.random.randint(key, (samples, *shape), 0, count)
        return jnp.take_along_axis(present[None], ranks, axis=-1)

    return Draws(*map(indices, jax.random.split(key)))


class BNP(EncoderDecoder):
    """CNP whose decoder also sees, in each of K copies, a context with bootstrapped residuals.

    (1) Resample the pairs (x, y) of the context. (2) From them predict mean and std at the context's own x. (3)
    Resample the residuals (y - mean) / std and centre them. (4) y~ = mean + std residual. The decoder also takes the
    encoders' representations of (x, y~). No gradient passes through (1) to (4). `key` draws train_samples copies for
    the loss, eval_samples for predictions.

    The residuals need the whole context: there is no state. Raises ValueError if a name is unknown, a depth leaves no
    layer, or the key is missing.
    """

    train_samples: Count = 4
    eval_samples: Count = 50

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> Distribution:
        """A mixture of eval_samples bootstraps; see NeuralProcess."""
        return self.predict(context, target_x, draw(need_key(key, type(self).__name__), self.eval_samples, context))

    def remember(self, context: Points, *, key: jax.Array | None = None) -> tuple:
        """What the encoders keep of the context, and of eval_samples bootstraps of it."""
        draws = draw(need_key(key, type(self).__name__), self.eval_samples, context)
        return self._kept(context), self._kept(self.bootstrap(context, draws))

    def query(self, memory, target_x, target_mask=None, *, key=None) -> Distribution:
        """See NeuralProcess; the draws are those of `remember`."""
        representations, extra = (self.read(part, target_x) for part in memory)
        return predictive.mixture(*self.decode(representations, target_x, extra))

    def loss_of_points(self, context: Points, points: Points, *, key: jax.Array | None = None) -> jax.Array:
        """-mean log p_base - mean log mean_k p_k over all points, [...]."""
        return self.train_loss(context, points, draw(need_key(key, type(self).__name__), self.train_samples, context))

    def predict(self, context: Points, target_x: jax.Array, draws: Draws) -> Distribution:
        """`__call__` with given draws."""
        return predictive.mixture(*self._bootstrapped(context, target_x, draws, self.encode(context, target_x)))

    def train_loss(self, context: Points, points: Points, draws: Draws) -> jax.Array:
        """`loss_of_points` with given draws."""
        representations = self.encode(context, points.x)
        base = predictive.factorised(*self.decode(representations, points.x))
        mixed = predictive.mixture(*self._bootstrapped(context, points.x, draws, representations))
        total = sum(predictive.log_prob(each, points.y, points.mask) for each in (base, mixed))
        return -total / predictive.count(points.mask, points.x.shape[-2])

    def bootstrap(self, context: Points, draws: Draws) -> Points:
        """K contexts, y~ [K, ..., N, dy] of steps (1) to (4) at the x and with the mask of the context.

        What depends on x alone, the keys and the weights of softmax cross-attention, is then computed once.
        """
        mask = None if context.mask is None else jnp.broadcast_to(context.mask, draws.points.shape)
        given = context.x, context.y, context.x, draws.points
        of_pairs = [path.resampled(*given, mask=mask) for path in self._paths()]
        mean, std = self.decode(of_pairs, context.x)
        residuals = resample((context.y - mean) / std, draws.residuals)
        y = mean + std * (residuals - set_mean(residuals, mask))
        return context._replace(y=lax.stop_gradient(y))

    def _bootstrapped(self, context, target_x, draws, representations):
        """Mean and standard deviation [K, ..., M, dy] of the bootstraps."""
        extra = self.encode(self.bootstrap(context, draws), target_x)
        return self.decode(representations, target_x, extra)


class BANP(Attentive, BNP):
    """BNP with the cross-attention and self-attention of CANP."""
