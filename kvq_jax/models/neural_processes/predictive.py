"""Predictive distributions of neural processes, and their log-likelihood where some targets are absent.

Three kinds, all of numpyro, for targets [..., M] with dy outputs each:

    factorised  Independent(Normal)           batch [..., M], event [dy]
    mixture     of K factorised ones          batch [..., M], event [dy]: mixed in each point, never jointly
    joint       a multivariate normal         batch [...],    event [M dy], index = target * dy + output

Their numbers are float32 at least. All have a `stddev` beside numpyro's `mean` and `variance`.

They validate their arguments where these are known. While a program is traced they are not, and numpyro, which can then
raise nothing, would compile the parts of each check one by one.
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.util import not_jax_tracer

from kvq_jax.names import choose
from kvq_jax.nn.predictions import FactorisedNormal, Mixture, at_least_float32

# Name -> (raw, floor) -> standard deviation. Published: softplus over 0.1 for CNP to BANP; for TNP to CMANP exp, or
# softplus over 0.05 where it is bounded.
STD_MAPS = {
    "softplus": lambda raw, floor: floor + (1 - floor) * jax.nn.softplus(raw),
    "exp": lambda raw, floor: floor + jnp.exp(raw),
}


def moments(raw: jax.Array, std_map: str, floor: float) -> tuple[jax.Array, jax.Array]:
    """raw [..., 2 dy] -> mean and standard deviation [..., dy], float32 at least.

    Raises ValueError for an unknown std_map.
    """
    mean, raw_std = jnp.split(at_least_float32(raw), 2, axis=-1)
    return mean, choose(STD_MAPS, std_map, "std_map")(raw_std, floor)


def factorised(mean: jax.Array, std: jax.Array) -> dist.Distribution:
    """Independent normals: mean and std [..., M, dy]."""
    known = not_jax_tracer(mean) and jnp.size(mean) > 0
    return FactorisedNormal(dist.Normal(mean, std, validate_args=known), 1, validate_args=known)


def mixture(mean: jax.Array, std: jax.Array) -> dist.Distribution:
    """Equal weights on K factorised distributions, mixed in each point: mean and std [K, ..., M, dy]."""
    mean, std = (jnp.moveaxis(x, 0, -2) for x in (mean, std))
    known = not_jax_tracer(mean) and jnp.size(mean) > 0
    weights = dist.Categorical(logits=jnp.zeros(mean.shape[:-1]), validate_args=known)
    return Mixture(weights, factorised(mean, std), validate_args=known)


def log_prob(predictive: dist.Distribution, y: jax.Array, mask: jax.Array | None) -> jax.Array:
    """log p(y [..., M, dy]) over the targets that mask [..., M] keeps, [...]: a sum over points, or the joint density.

    In a joint distribution each absent target is independent with variance 1; its density is divided out.
    """
    if y.shape[-2] == 0:
        return jnp.zeros(y.shape[:-2], y.dtype)
    if predictive.batch_shape != y.shape[:-2]:  # not joint
        of_point = predictive.log_prob(y if mask is None else jnp.where(mask[..., None], y, 0))
        return jnp.sum(of_point if mask is None else jnp.where(mask, of_point, 0), -1)
    flat = y.reshape(*y.shape[:-2], -1)
    if mask is None:
        return predictive.log_prob(flat)
    there = jnp.repeat(mask, y.shape[-1], axis=-1)
    absent = jnp.sum(~there, -1)
    return predictive.log_prob(jnp.where(there, flat, predictive.mean)) + absent * 0.5 * math.log(2 * math.pi)


def count(mask: jax.Array | None, points: int) -> jax.Array | int:
    """How many of `points` a mask [..., points] keeps, [...]; at least 1, to divide by."""
    return max(points, 1) if mask is None else jnp.maximum(jnp.sum(mask, -1), 1)
