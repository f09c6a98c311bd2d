"""The split into heads, which every block that mixes the elements of a set shares."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array


def split_heads(x: Array, num_heads: int) -> Array:
    """[..., N, H d] -> [..., H, N, d]: heads are contiguous slices of the features, and a leading dimension of the op.

    Raises ValueError if num_heads does not divide the width.
    """
    if x.shape[-1] % num_heads:
        raise ValueError(f"{num_heads} heads do not divide a width of {x.shape[-1]}")
    return jnp.swapaxes(x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads), -2, -3)


def merge_heads(x: Array) -> Array:
    """[..., H, N, d] -> [..., N, H d], the inverse of `split_heads`."""
    x = jnp.swapaxes(x, -2, -3)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def mask_of_heads(mask: Array | None, key: Array) -> Array | None:
    """A mask for key [..., N, H d] as one for its heads [..., H, N, d]: [..., 1, N] or [..., 1, M, N]; [N] as it is."""
    if mask is None or mask.ndim == 1:
        return mask
    return jnp.expand_dims(mask, -2 if mask.ndim == key.ndim - 1 else -3)


def attend(
    mix: Callable[..., Array], num_heads: int, query: Array, key: Array, value: Array, *, mask: Array | None = None
) -> Array:
    """concatenate_h(mix(Q_h, K_h, V_h)) on contiguous slices of features that are already projected.

    query [..., M, H d], key [..., N, H d], value [..., N, H k], mask [..., N] or [..., M, N] -> [..., M, H k]; zeros
    where no key is left. `mix` is a Mixer, or any function of an op's signature. Raises ValueError as `split_heads`.
    """
    heads = (split_heads(x, num_heads) for x in (query, key, value))
    return merge_heads(mix(*heads, mask=mask_of_heads(mask, key)))
