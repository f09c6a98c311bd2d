"""Position features of coordinates."""

import jax.numpy as jnp
from jax import Array


def fourier_features(x: Array, levels: int) -> Array:
    """Concatenates x, sin(2^l pi x) and cos(2^l pi x) for l = 0, ..., levels, along the features.

    x [..., d] -> [..., d + 2 d (levels + 1)], in float32 at least; levels = 0 means no position features: x itself.

    Made for coordinates in [-1, 1]. The slowest wave has one period over that range, so only x itself tells -1 from 1.
    On a grid of n coordinates with spacing 2 / (n - 1), levels above log2((n - 1) / 2) alias; they still tell
    neighbours apart. The Intention paper (Appendix 4.2) adds an unspecified positional encoding to pixel positions;
    this is our choice, with levels = 6.

    Raises ValueError if levels is negative.
    """
    if levels < 0:
        raise ValueError(f"levels is at least 0, not {levels}")
    if levels == 0:
        return x
    x = jnp.asarray(x, jnp.promote_types(x.dtype, jnp.float32))
    angles = jnp.pi * (x[..., None, :] * 2.0 ** jnp.arange(levels + 1, dtype=x.dtype)[:, None])  # [..., levels + 1, d]
    waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return jnp.concatenate([x, waves.reshape(*x.shape[:-1], -1)], axis=-1)


def sinusoids(time: Array, features: int, longest: float = 10_000.0) -> Array:
    """sin and cos of t / longest^(2 floor(j / 2) / features), on even and odd features j (Vaswani et al. 2017, 3.5).

    Of times, not of places in a sequence, in the Transformer Hawkes Process (Zuo et al. 2020, arXiv 2002.09291).
    time [...] -> [..., features], in float32 at least.
    """
    time = jnp.asarray(time, jnp.promote_types(time.dtype, jnp.float32))
    place = jnp.arange(features)
    angles = time[..., None] / longest ** (2 * (place // 2) / features).astype(time.dtype)
    return jnp.where(place % 2 == 0, jnp.sin(angles), jnp.cos(angles))
