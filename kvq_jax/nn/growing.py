"""Self-attention over a set that grows: a new element costs O(N), where reading the set anew costs O(N^2).

A new element changes the output of all others. But with the op as a stream it does so by one more key: the state of
every query is updated with the new key, and the state of the new query with all keys. The output is that of the block,
MAB(X, X), for the elements added so far.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.nn.cache import put
from kvq_jax.nn.heads import mask_of_heads, merge_heads
from kvq_jax.nn.set_transformer import MAB


class GrowingSet(NamedTuple):
    """A set of elements with room for more, as the block sees it: N places, of which some are filled."""

    skip: Array  # [..., N, dim], what the heads are added to
    query: Array  # [..., H, N, d]
    key: Array  # [..., H, N, d]
    value: Array  # [..., H, N, d]
    attended: Any  # the state of the op's stream at these queries, [..., H, N, ...]; or one that serves any query


def empty(block: MAB, batch: tuple[int, ...], capacity: int) -> GrowingSet:
    """No element, and room for `capacity`. Raises ValueError if the op has no stream."""
    heads, width = block.num_heads, block.dim // block.num_heads
    row = jnp.zeros((*batch, heads, capacity, width))
    state = block.mixer.stream(row).init(width, width, batch=row.shape[:-2])
    return GrowingSet(jnp.zeros((*batch, capacity, block.dim)), row, row, row, state)


def extend(block: MAB, grown: GrowingSet, rows: Array, position: Array | int, there: Array) -> GrowingSet:
    """The set after the elements `rows` [..., n, a] are put into the places position, position + 1, ...

    `there` [..., N] says which places are filled, these among them; an element whose place it does not name is absent.
    Raises ValueError as kvq_jax.nn.cache.put.
    """
    axis = grown.skip.ndim - 2
    query, (key, value) = block.heads(rows), block.pairs(rows)
    skip = put(grown.skip, block.skip(rows, block.query(rows)), position, axis)
    new = mask_of_heads(lax.dynamic_slice_in_dim(there, position, rows.shape[-2], -1), rows)
    attended = block.mixer.stream(grown.query).update(grown.attended, key, value, new)
    old = zip((grown.query, grown.key, grown.value), (query, key, value))
    queries, keys, values = (put(places, fresh, position, axis + 1) for places, fresh in old)
    if block.mixer.serves_its_queries():
        stream, width = block.mixer.stream(query), key.shape[-1]
        newer = stream.update(stream.init(width, width), keys, values, mask_of_heads(there, skip))
        attended = jax.tree.map(lambda places, fresh: put(places, fresh, position, axis + 1), attended, newer)
    return GrowingSet(skip, queries, keys, values, attended)


def read(block: MAB, grown: GrowingSet) -> Array:
    """MAB(X, X) of the elements there, [..., N, dim]; rows of absent elements mean nothing."""
    return block.joined(grown.skip, merge_heads(block.mixer.stream(grown.query).read(grown.attended)))
