"""Streaming: operators of KVQ space as states of constant size, with one algebra (see `Stream`).

    stream = softmax_stream(query)                 # or intention_stream(), whose queries may come later
    state = stream.init(d, k)
    state = stream.update(state, key, value, mask)
    state = stream.merge(state, other)
    output = stream.read(state)                    # = softmax_attention(query, every key seen, every value seen)

Sigma-Intention and the sigma-Informer have no stream: their softmax over keys needs the Gram matrix of all keys first.
"""

# ruff: noqa: F401  the door to all that streams

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from kvq_jax.names import choose
from kvq_jax.ops import linalg, masks
from kvq_jax.ops.masks import Mask
from kvq_jax.ops.operators import OPERATORS, check_stream_options
from kvq_jax.ops.streaming_attention import NormalisedState, TotalState, erf_stream, laplace_stream, softmax_stream
from kvq_jax.ops.streaming_fold import Stream, fold, fold_made, merge_devices, prefixes
from kvq_jax.ops.streaming_intention import (
    LinearState,
    MeanState,
    Moments,
    informer_stream,
    intention_stream,
    linear_stream,
    uniform_stream,
    weights,
)
from kvq_jax.ops.streaming_rls import RlsState, rls_init, rls_read, rls_update


def chunked(name: str, chunk_size: int) -> Callable[..., Array]:
    """The operator `name` evaluated in chunks of keys, with the options of its stream; no [M, N] array in memory.

    Linear attention, the mean and Intention take key masks [..., N] only. Intention with alpha=0 takes the
    pseudo-inverse of K'K, see `weights`. Raises ValueError for an operator that has no stream; what is returned raises
    it for an option that the stream does not have, and for a chunk_size below 1.
    """
    streams = {name: row.stream for name, row in OPERATORS.items() if row.stream}
    make = choose(streams, name, "operator with a stream")

    def op(query: Array, key: Array, value: Array, *, mask: Mask = None, **options) -> Array:
        shape = masks.output_shape(query, key, value)
        masks.resolve(query, key, value, mask)
        out, _ = linalg.dtypes(query, key, value)
        check_stream_options(name, make, options)
        stream = make(query, **options)
        state = fold(stream, stream.init(key.shape[-1], value.shape[-1]), key, value, mask, chunk_size=chunk_size)
        output = stream.read(state)
        return jnp.broadcast_to(output, jnp.broadcast_shapes(shape, output.shape)).astype(out)

    return op
