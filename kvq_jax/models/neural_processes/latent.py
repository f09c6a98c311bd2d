"""Latent neural processes: NP (Garnelo et al. 2018, arXiv 1807.01622) and ANP (Kim et al. 2019, arXiv 1901.05761).

Both have the deterministic path of the ANP paper beside the latent one. The published code trains them on context and
target points, by an importance-weighted bound (Burda et al. 2016, arXiv 1509.00519) where the papers have the ELBO.
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from flax.core import FrozenDict

from kvq_jax.domains import Count, NotNegative
from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.base import need_key
from kvq_jax.models.neural_processes.encoder_decoder import Attentive, Streamed, renamings
from kvq_jax.models.points import Points
from kvq_jax.names import choose
from kvq_jax.nn import Op
from kvq_jax.nn.predictions import at_least_float32

TORCH_NAMES = renamings(denc="encoder", lenc="pooling", dec="decoder")


def importance(
    log_likelihood: jax.Array, z: jax.Array, prior: dist.Distribution, posterior: dist.Distribution
) -> jax.Array:
    """log mean_k p(y | z_k) p(z_k) / q(z_k), from log_likelihood [K, ...] and z [K, ..., latent]: [...]."""
    weights = log_likelihood + prior.log_prob(z) - posterior.log_prob(z)
    return jax.nn.logsumexp(weights, axis=0) - math.log(len(weights))


def elbo(log_likelihood: jax.Array, z: jax.Array, prior: dist.Distribution, posterior: dist.Distribution) -> jax.Array:
    """mean_k log p(y | z_k) - KL(q || p), from log_likelihood [K, ...]: [...]."""
    return jnp.mean(log_likelihood, 0) - dist.kl_divergence(posterior, prior)


# Name -> a lower bound of log p(y). Published: 'importance' with K = 4 (GPs, images), 'elbo' with K = 1 (bandits).
OBJECTIVES = {"importance": importance, "elbo": elbo}


class NP(Streamed):
    """y* ~ N(decoder(pool(context), z, x*)) with z ~ N(mu, sigma) of a second pooling, sigma = 0.1 + 0.9 sigmoid(.).

    One network gives the prior p(z | C) from the context and the posterior q(z | C, T) from all points. `key` draws z:
    train_samples from the posterior for the loss, eval_samples from the prior for predictions.

    Raises ValueError if a name is unknown, a depth leaves no layer, or the key is missing.
    """

    latent: Count = 128
    latent_floor: NotNegative = 0.1  # of sigma
    train_samples: Count = 4
    eval_samples: Count = 50
    objective: str = "importance"  # a name of OBJECTIVES

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> dist.Distribution:
        """A mixture of eval_samples; see NeuralProcess."""
        return self.predict(context, target_x, self._noise(self.eval_samples, context.x, key))

    def query(self, memory, target_x, target_mask=None, *, key=None) -> dist.Distribution:
        noise = self._noise(self.eval_samples, target_x, key)
        return self._mixture(*self.read(memory, target_x), target_x, noise)

    def loss_of_points(self, context: Points, points: Points, *, key: jax.Array | None = None) -> jax.Array:
        """-bound(log p(y of all points)) / (N + M), [...]."""
        return self.train_loss(context, points, self._noise(self.train_samples, context.x, key))

    def predict(self, context: Points, target_x: jax.Array, noise: jax.Array) -> dist.Distribution:
        """`__call__` with z = mu + sigma noise, noise [K, ..., latent]."""
        return self._mixture(*self.encode(context, target_x), target_x, noise)

    def train_loss(self, context: Points, points: Points, noise: jax.Array) -> jax.Array:
        """`loss_of_points` with z = mu + sigma noise, noise [K, ..., latent]."""
        representation, summary = self.encode(context, points.x)
        prior, posterior = self.z_given(summary), self.z_given(self.pooling(points.x, points.y, mask=points.mask))
        z = reparametrised(posterior, noise)
        decoded = predictive.factorised(*self.decode((representation, z[..., None, :]), points.x))
        log_likelihood = predictive.log_prob(decoded, points.y, points.mask)
        bound = choose(OBJECTIVES, self.objective, "objective")(log_likelihood, z, prior, posterior)
        return -bound / predictive.count(points.mask, points.x.shape[-2])

    def z_given(self, summary: jax.Array) -> dist.Distribution:
        """The distribution of z [..., latent], from what the pooling gives, [..., 1, 2 latent]."""
        mean, raw = jnp.split(at_least_float32(summary[..., 0, :]), 2, axis=-1)
        return predictive.factorised(mean, self.latent_floor + (1 - self.latent_floor) * jax.nn.sigmoid(raw))

    def _mixture(self, representation, summary, target_x, noise) -> dist.Distribution:
        z = reparametrised(self.z_given(summary), noise)
        return predictive.mixture(*self.decode((representation, z[..., None, :]), target_x))

    def _noise(self, samples: int, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return jax.random.normal(need_key(key, type(self).__name__), (samples, *x.shape[:-2], self.latent))

    def _summary_features(self) -> int:
        return 2 * self.latent


class ANP(Attentive, NP):
    """NP with a deterministic path by cross-attention(context, x*), and self-attention over the context before both."""


class IntentionANP(ANP):
    """The Intention neural process: see `Attentive`. Not published elsewhere."""

    op: Op = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus")
    self_attention: bool | int = False


def reparametrised(normal: dist.Distribution, noise: jax.Array) -> jax.Array:
    """mu + sigma noise, [K, ..., latent]."""
    return normal.base_dist.loc + normal.base_dist.scale * noise
