"""Mixtures of Gaussians with diagonal covariances: their likelihood, a step of EM, and what a network says of one.

Shapes: K components, D dimensions, points x [..., N, D], mask [..., N] (True = take part).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Mixture(NamedTuple):
    """sum_k w_k N(x; mean_k, diag(std_k^2)); the weights sum to 1."""

    log_weight: Array  # [..., K]
    mean: Array  # [..., K, D]
    std: Array  # [..., K, D]


def mixture_of(output: Array, dimension: int, min_std: float = 1e-6, there: Array | None = None) -> Mixture:
    """The mixture that a row for each component describes: a logit, D coordinates, and D or 1 standard deviations.

    output [..., K, 1 + D + D] or [..., K, 1 + D + 1], whose deviations pass through softplus (Lee et al. 2019,
    Section 5.3); min_std keeps them away from 0. Components that there [..., K] leaves out have the weight 0; it
    leaves one at least. Raises ValueError for another width.
    """
    widths = (1 + 2 * dimension, 2 + dimension)
    if output.shape[-1] not in widths:
        raise ValueError(f"{output.shape[-1]} numbers for a component of {dimension} dimensions: expected {widths}")
    logit, mean, raw = jnp.split(output, (1, 1 + dimension), axis=-1)
    std = jnp.broadcast_to(min_std + jax.nn.softplus(raw), mean.shape)
    logit = logit[..., 0] if there is None else jnp.where(there, logit[..., 0], -jnp.inf)
    return Mixture(jax.nn.log_softmax(logit), mean, std)


def log_joint(mixture: Mixture, x: Array) -> Array:
    """log w_k N(x_i; ...), [..., N, K]. Its argmax over K is the component that a point most likely comes from."""
    scaled = (x[..., :, None, :] - mixture.mean[..., None, :, :]) / mixture.std[..., None, :, :]
    normal = -0.5 * scaled**2 - jnp.log(mixture.std[..., None, :, :]) - 0.5 * jnp.log(2 * jnp.pi)
    return normal.sum(-1) + mixture.log_weight[..., None, :]


def log_likelihood(mixture: Mixture, x: Array, mask: Array | None = None) -> Array:
    """The mean of log p(x_i) over the points, [...]; 0 where there is none."""
    of_points = jax.nn.logsumexp(log_joint(mixture, _there(x, mask)), -1)
    if mask is None:
        return of_points.sum(-1) / max(of_points.shape[-1], 1)
    return _sum(of_points, mask) / jnp.maximum(mask.sum(-1), 1)


def em_step(mixture: Mixture, x: Array, mask: Array | None = None, min_std: float = 1e-3) -> Mixture:
    """One step of expectation and maximisation: the likelihood of x does not fall.

    No standard deviation falls below min_std, where likelihoods would have no bound; the mixture given must keep to it
    too for the promise to hold. A component without points keeps its place and gets the weight 0; without
    any points the mixture stays. Raises nothing.
    """
    x = _there(x, mask)
    share = jax.nn.softmax(log_joint(mixture, x), -1)
    share = share if mask is None else jnp.where(mask[..., None], share, 0)
    mass = share.sum(-2)  # [..., K]
    alive = (mass > _LEAST)[..., None]
    of_component = share / jnp.maximum(mass, _LEAST)[..., None, :]
    mean = jnp.einsum("...nk,...nd->...kd", of_component, x, precision="highest")
    squares = (x[..., :, None, :] - mean[..., None, :, :]) ** 2
    variance = jnp.einsum("...nk,...nkd->...kd", of_component, squares, precision="highest")
    log_weight = jnp.log(jnp.maximum(mass, _LEAST)) - jnp.log(jnp.maximum(mass.sum(-1, keepdims=True), _LEAST))
    std = jnp.sqrt(jnp.maximum(variance, min_std**2))  # in this order its gradient is finite
    log_weight = jnp.where(alive.any(-2), log_weight, mixture.log_weight)
    return Mixture(log_weight, jnp.where(alive, mean, mixture.mean), jnp.where(alive, std, mixture.std))


def _there(x: Array, mask: Array | None) -> Array:
    """x without what its masked places hold."""
    return x if mask is None else jnp.where(mask[..., None], x, 0)


def _sum(values: Array, mask: Array) -> Array:
    return jnp.where(mask, values, 0).sum(-1)


_LEAST = 1e-20  # points of a component that has none
