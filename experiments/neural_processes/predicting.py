"""Predictions at many positions, of which a model sees no more at once than in its training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def curve(predict: Callable, x: jax.Array, most: int) -> jax.Array:
    """The moments [..., 2, G] at x [..., G, 1], of which predict (x -> distribution) sees at most `most` at once."""
    found = jax.lax.map(lambda x: moments(predict(x), x.shape[:-1]), spread(x, most))
    return jnp.moveaxis(found, 0, -1).reshape(*x.shape[:-2], 2, x.shape[-2])


def spread(x: jax.Array, most: int) -> jax.Array:
    """Positions x [..., G, dx] in equal parts of at most `most`, each over all of x: [parts, ..., G / parts, dx].

    A part has no more targets than training had: a joint prediction depends on their number, and the variance of a
    joint covariance would grow with it.
    """
    *lead, count, dim = x.shape
    parts = next(parts for parts in range(-(-count // most), count + 1) if count % parts == 0)
    return jnp.moveaxis(x.reshape(*lead, count // parts, parts, dim), -2, 0)


def moments(predictive, shape: tuple[int, ...]) -> jax.Array:
    """Means and standard deviations [..., 2, M] of any distribution of targets [..., M] = shape, of one output."""
    return jnp.stack([predictive.mean.reshape(shape), jnp.sqrt(predictive.variance).reshape(shape)], -2)
