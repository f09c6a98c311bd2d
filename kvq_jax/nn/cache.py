"""Arrays with room for more rows, as caches are."""

import numbers

import jax.numpy as jnp
from jax import Array, lax


def put(places: Array, rows: Array, position: Array | int, axis: int) -> Array:
    """`places` with `rows` in the places position, position + 1, ... of `axis`, in the wider of their dtypes.

    Raises ValueError if there is no room for them. A position that is an array is not read: there must be room.
    """
    room, count = places.shape[axis], rows.shape[axis]
    start = position if isinstance(position, numbers.Integral) else 0
    if not 0 <= start <= room - count:
        raise ValueError(f"no room for {count} rows from place {start} on: the cache has {room} places")
    dtype = jnp.promote_types(places.dtype, rows.dtype)
    return lax.dynamic_update_slice_in_dim(places.astype(dtype), rows.astype(dtype), position, axis)
