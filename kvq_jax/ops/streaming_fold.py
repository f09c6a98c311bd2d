"""What can be done with any streaming state: fold a long context in chunks, scan all prefixes, merge over devices.

Each of these takes a stream, such as kvq_jax.ops.streaming.softmax_stream(query), and the state to start with,
`stream.init(d, k)` for no keys. Keys are [..., N, d], values [..., N, k], masks [..., N], or [..., M, N] for a stream
of fixed queries. A state is a pytree whose size does not depend on the number of keys seen.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.ops.masks import Mask, broadcast

State = Any


class Stream(NamedTuple):
    """An operator as a monoid: states of sets of keys, merged by an associative operation whose identity is `init`.

    States are exact: however the keys are split into updates and merges, `read` gives what the operator gives for all
    of them. The merge is commutative too, unless the stream forgets exponentially (then `a` comes before `b`). States
    compute in float32 at least, and in float64 if a key, value or query is float64. Leading axes broadcast, as in the
    operator.

    A read has two parts. `finish` does what no query changes, such as a solve, once for a state; `answer` does the rest
    for each set of queries.
    """

    init: Callable[..., State]  # (d, k, *, batch=(), dtype=float32) -> state of no keys
    update: Callable[..., State]  # (state, key [..., N, d], value [..., N, k], mask=None) -> state
    merge: Callable[[State, State], State]
    finish: Callable[..., Any]  # state -> what answers need of it; keyword options as the operator has them
    answer: Callable[..., Array]  # (finished state, query [..., M, d] or None: the stream's own) -> [..., M, k]
    forget: Callable[..., State] | None = None  # the inverse of update, where there is one

    def read(self, state: State, query: Array | None = None, **options) -> Array:
        """The answer of a state, [..., M, k]; options are those of `finish`."""
        return self.answer(self.finish(state, **options), query)


def check_sums(ours: Iterable[Array], theirs: Iterable[Array]) -> None:
    """Raises ValueError unless matrices of sums [..., n, k] are of the same rows and columns, and of batches that fit.

    Without it those of width 1 would broadcast into others.
    """
    for x, y in zip(ours, theirs):
        if x.shape[-2:] != y.shape[-2:] or broadcast(x.shape[:-2], y.shape[:-2]) is None:
            raise ValueError(f"a state with sums {x.shape} does not fit keys and values, or a state, with {y.shape}")


def fold(
    stream: Stream,
    state: State,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    chunk_size: int,
    embed: Callable[[Array, Array], tuple[Array, Array]] | None = None,
) -> State:
    """Updates a state with a long context, chunk by chunk: Feng et al. 2023, CMANP (arXiv 2305.14567), Section 3.1.2.

    Memory, embeddings and scores included, is that of one chunk. The gradient computes each chunk again and keeps at
    most one state per chunk. Raises ValueError if chunk_size is not positive, numbers of rows differ, or shapes do not
    fit.

    Args:
        chunk_size: keys in a chunk; the last may have fewer.
        embed: (key chunk, value chunk) -> (key chunk, value chunk), applied inside the scan: then `key` and `value` may
            be any arrays of N rows, such as inputs and labels.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
    arrays = _rows_first(key, value, mask)
    count, rest = divmod(arrays[0].shape[0], chunk_size)

    def make(rows):
        key, value, *mask = (jnp.moveaxis(x, 0, axis) for x, axis in zip(rows, (-2, -2, -1)))
        return (*(embed(key, value) if embed else (key, value)), *mask)

    whole = tuple(x[: count * chunk_size].reshape(count, chunk_size, *x.shape[1:]) for x in arrays)
    if count:
        state = _settled(stream, state, make(tuple(x[0] for x in whole)))
        state, _ = lax.scan(_checkpoint(lambda state, rows: (stream.update(state, *make(rows)), None)), state, whole)
    return stream.update(state, *make(tuple(x[count * chunk_size :] for x in arrays))) if rest or not count else state


def fold_made(stream: Stream, state: State, make_chunk: Callable[[Array], tuple], count: int) -> State:
    """Updates a state with `count` chunks that are made inside the scan: memory does not depend on their number.

    make_chunk(i), i an int32 scalar, gives (key, value) or (key, value, mask). Raises ValueError if shapes do not fit.
    """

    def step(carry, _):
        i, state = carry
        return (i + 1, stream.update(state, *make_chunk(i))), None

    zero = jnp.zeros((), jnp.int32)
    (_, state), _ = lax.scan(_checkpoint(step), (zero, _settled(stream, state, make_chunk(zero))), None, length=count)
    return state


def prefixes(stream: Stream, state: State, key: Array, value: Array, mask: Mask = None) -> State:
    """The states after 1, 2, ..., N keys, in logarithmic depth by an associative scan: what causal training needs.

    States have a new first axis N, and memory is N states. `jax.vmap(stream.read)(states)` is the output for every
    prefix, [N, ..., M, k]. Raises ValueError if numbers of rows differ or shapes do not fit.
    """
    empty = stream.init(key.shape[-1], value.shape[-1])

    def single(key, value, *mask):
        return stream.update(empty, key[..., None, :], value[..., None, :], *(x[..., None] for x in mask))

    states = jax.vmap(single)(*_rows_first(key, value, mask))
    states = lax.associative_scan(jax.vmap(stream.merge), states)
    return jax.vmap(stream.merge, (None, 0))(state, states)


def merge_devices(stream: Stream, state: State, axis_name: str) -> State:
    """Merges the states of all devices on the mesh axis `axis_name`, in their order; for use inside jax.shard_map.

    Each device sends its state only, never its keys. The result is the same on every device (out_specs=P()).
    """
    here = jnp.arange(lax.axis_size(axis_name)) == lax.axis_index(axis_name)
    # A sum of one state per slot, and not a gather, since a sum is known to be equal on all devices.
    place = lambda x: jnp.where(here.reshape(-1, *(1,) * jnp.ndim(x)), x, 0)
    states = lax.psum(jax.tree.map(place, state), axis_name)
    return jax.tree.map(lambda x: x[-1], lax.associative_scan(jax.vmap(stream.merge), states))


def _rows_first(key: Array, value: Array, mask: Mask) -> tuple[Array, ...]:
    """(key [N, ..., d], value [N, ..., k]) and mask [N, ...] if there is one."""
    arrays = [jnp.asarray(x) for x in (key, value) + (() if mask is None else (mask,))]
    axes = (-2, -2, -1)
    flat = any(x.ndim < -axis for x, axis in zip(arrays, axes))
    if flat or len({x.shape[axis] for x, axis in zip(arrays, axes)}) > 1:
        got = ", ".join(str(x.shape) for x in arrays)
        raise ValueError(f"expected key [..., N, d], value [..., N, k] and mask [..., N], got {got}")
    return tuple(jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes))


def _settled(stream: Stream, state: State, chunk: tuple) -> State:
    """An update with a row that is masked: gives the state the shape, dtype and devices that a scan must carry."""
    key, value, *mask = chunk
    nobody = mask[0][..., :1] & False if mask else jnp.zeros(1, bool)
    return stream.update(state, key[..., :1, :], value[..., :1, :], nobody)


# Inside a scan nothing else can share the computation, so the barrier against that is not needed.
_checkpoint = functools.partial(jax.checkpoint, prevent_cse=False)
