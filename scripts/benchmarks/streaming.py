"""Streaming states: the cost of an update after few and many keys, and of a fold against the batch operator."""

import functools

import jax

from experiments.harness import timing
from experiments.harness.programs import Program, memory
from kvq_jax.ops import OPERATORS, OPS
from kvq_jax.ops.streaming import chunked, fold_made

Array = jax.Array

_NAMES = ("softmax", "intention")
_M, _D, _K, _CHUNK = 128, 64, 64, 1000
_SEEN = (1_000, 1_000_000)
_LENGTHS = (1_000, 10_000, 100_000)
_TURNS, _BUDGET_S = 11, 1.0  # of each comparison


def main() -> None:
    """Prints update cost at 1e3 and 1e6 keys seen, and time and memory of a fold against the batch operator."""
    sizes = f"{_M} queries, {_D} features, {_K} values, chunks of {_CHUNK} keys"
    print(f"streaming, {sizes}, float32, {jax.devices()[0].device_kind}")
    query = jax.random.normal(jax.random.key(0), (_M, _D)) / _D**0.5
    for name in _NAMES:
        print(_update_line(name, query))
    for name in _NAMES:
        for length in _LENGTHS:
            print(_fold_line(name, query, length))


def keys_and_values(i: Array | int, n: int = _CHUNK) -> tuple[Array, Array]:
    """Chunk i of an endless context: [n, _D] and [n, _K]."""
    key, value = jax.random.split(jax.random.fold_in(jax.random.key(1), i))
    return jax.random.normal(key, (n, _D)), jax.random.normal(value, (n, _K))


def _update_line(name: str, query: Array) -> str:
    stream = OPERATORS[name].stream(query)
    condition = jax.jit(lambda state, count: fold_made(stream, state, keys_and_values, count), static_argnums=1)
    few, many = (condition(stream.init(_D, _K), seen // _CHUNK) for seen in _SEEN)
    update, chunk = jax.jit(stream.update), keys_and_values(10**6)
    times = timing.interleaved([functools.partial(update, state, *chunk) for state in (few, many)], _TURNS, _BUDGET_S)
    size = sum(x.nbytes for x in jax.tree.leaves(many)) / 1024
    return (
        f"{name:10} update    {1e3 * timing.seconds(times, 0):7.2f} ms with {_SEEN[0]:.0e} keys seen; "
        f"with {_SEEN[1]:.0e}, {timing.ratio(times, 1, 0):.2f} times the time; state {size:.0f} KiB"
    )


def _fold_line(name: str, query: Array, length: int) -> str:
    key, value = keys_and_values(0, length)
    ops = OPS[name], chunked(name, _CHUNK)
    batch_memory, fold_memory = (memory(Program(op, (query, key, value))) / 2**20 for op in ops)
    calls = [functools.partial(jax.jit(op), query, key, value) for op in ops]
    times = timing.interleaved(calls, _TURNS, _BUDGET_S)
    return (
        f"{name:10} N={length:<7} batch {1e3 * timing.seconds(times, 0):7.2f} ms and {batch_memory:6.2f} MiB, "
        f"fold {timing.ratio(times, 1, 0):.2f} times the time and {fold_memory:.2f} MiB"
    )
