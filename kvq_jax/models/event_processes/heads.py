"""From what a history comes to, to a forecast: a mixture of log-normals with a mark, or intensities of the marks."""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from kvq_jax.models.event_processes.base import Forecast
from kvq_jax.nn import Block, Linear
from kvq_jax.nn.mlp import parameter
from kvq_jax.nn.predictions import at_least_float32
from kvq_jax.nn.waiting_times import LogNormalMixture, SoftplusIntensity

LOG_SCALES = (-5.0, 3.0)  # of a component, in units of log_std


class MixtureHead(Block):
    """log gap = log_mean + log_std x, with x a mixture of normals (Shchur et al. 2020, arXiv 1909.12127, Section 3.2).

    Linear maps of the history give its parameters, and the logits of the mark, which does not depend on the gap. Log
    scales are clamped to LOG_SCALES, as in the released code: the gradient passes as if they were not.
    """

    num_marks: int
    components: int  # of the mixture
    log_mean: float  # mean of the log gaps of the data
    log_std: float  # and their standard deviation

    @nn.compact
    def __call__(self, hidden: Array, elapsed: Array) -> Forecast:
        """hidden [..., D], elapsed [...] -> a forecast [...]."""
        logits = at_least_float32(Linear(self.num_marks, name="mark")(hidden))
        loc, log_scale, weight = jnp.split(at_least_float32(Linear(3 * self.components, name="mixture")(hidden)), 3, -1)
        log_scale += lax.stop_gradient(jnp.clip(log_scale, *LOG_SCALES) - log_scale)
        loc, scale = self.log_mean + self.log_std * loc, self.log_std * jnp.exp(log_scale)
        return Forecast(LogNormalMixture(jax.nn.log_softmax(weight), loc, scale), logits)


class IntensityHead(Block):
    """lambda_k = softplus_k(w_k h + b_k + alpha_k (t - t_j) / (t_j + 1)) (Zuo et al. 2020, arXiv 2002.09291).

    Times are in units of time_scale. The 1 is the released code's, which has one alpha and one beta for all marks;
    here each mark has its own, as in the paper. They start where the code starts: alpha = -0.1, beta = 1. Without
    by_mark one intensity is that of all marks, and a linear map gives the logits of the mark.
    """

    num_marks: int
    time_scale: float  # what times are divided by
    by_mark: bool  # whether each mark has its intensity

    @nn.compact
    def __call__(self, hidden: Array, elapsed: Array) -> Forecast:
        """hidden [..., D], elapsed [...] -> a forecast [...]."""
        kinds = self.num_marks if self.by_mark else 1
        start = at_least_float32(Linear(kinds, name="intensity")(hidden))
        alpha = at_least_float32(parameter(self, "alpha", nn.initializers.constant(-0.1), (kinds,)))
        start_of_beta = nn.initializers.constant(math.log(math.e - 1))
        beta = jax.nn.softplus(at_least_float32(parameter(self, "beta", start_of_beta, (kinds,))))
        slope = alpha / (elapsed[..., None].astype(start.dtype) + 1)
        logits = None if self.by_mark else at_least_float32(Linear(self.num_marks, name="mark")(hidden))
        unit = jnp.full(start.shape[:-1], self.time_scale, start.dtype)
        return Forecast(SoftplusIntensity(start, slope, jnp.broadcast_to(beta, start.shape), unit), logits)
