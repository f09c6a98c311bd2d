"""Time of Intention over time of softmax attention, M = N and k = d (as Garnelo and Czarnecki 2023, Figure 5).

Each cell times three jitted functions in turns (attention, Intention, attention, plain, ...), so that whatever else the
machine does falls on all of them, and reports the median over turns of the ratio of neighbours. `plain` is the choice that
the paper writes down: primal if d < N, else dual, by one library Cholesky factorisation and solve. On CPUs the library is
OpenBLAS, whose threads stall where other processes share the cores: set OPENBLAS_NUM_THREADS=1 for a steady `plain`.
"""
import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from kvq_jax.ops import intention, softmax_attention

Array = jax.Array


class Cell(NamedTuple):
    n: int
    d: int
    attention_ms: float
    intention: float  # ratio to attention
    plain: float      # ratio to attention


def plain_intention(query: Array, key: Array, value: Array, alpha: float = 1e-3) -> Array:
    """Intention with the smaller of the two systems and nothing else chosen: the bar to beat."""
    n, d = key.shape
    if d < n:
        gram = key.T @ key + alpha * jnp.eye(d)
        return query @ jax.scipy.linalg.solve(gram, key.T @ value, assume_a="pos")
    gram = key @ key.T + alpha * jnp.eye(n)
    return query @ key.T @ jax.scipy.linalg.solve(gram, value, assume_a="pos")


def inputs(n: int, d: int) -> tuple[Array, Array, Array]:
    """query [n, d], key [n, d], value [n, d]; queries are scaled so that the scores of attention have variance 1."""
    q, k, v = jax.random.split(jax.random.key(0), 3)
    return jax.random.normal(q, (n, d)) / d ** 0.5, jax.random.normal(k, (n, d)), jax.random.normal(v, (n, d))


def seconds(function: Callable, arguments: tuple, calls: int) -> float:
    """Wall time of one call, from `calls` calls in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        out = function(*arguments)
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / calls


def measure(n: int, d: int, turns: int, budget: float) -> Cell:
    """One cell of the grid, in about `budget` seconds plus compilation."""
    arguments = inputs(n, d)
    functions = [jax.jit(f) for f in (softmax_attention, intention, plain_intention)]
    for f in functions:
        jax.block_until_ready(f(*arguments))
    attention, ours, plain = functions
    slowest = max(seconds(f, arguments, 1) for f in functions)
    calls = max(1, int(budget / (4 * turns * slowest)))
    times = [[seconds(f, arguments, calls) for f in (attention, ours, attention, plain)] for _ in range(turns)]
    return Cell(n, d, 1e3 * statistics.median(t[0] for t in times), statistics.median(t[1] / t[0] for t in times),
                statistics.median(t[3] / t[2] for t in times))


def summary(cells: Sequence[Cell], field: str) -> str:
    """'median 0.71, worst 2.10 (N=512, d=512)' of the ratios in a field."""
    worst = max(cells, key=lambda c: getattr(c, field))
    median = statistics.median(getattr(c, field) for c in cells)
    return f"median {median:.2f}, worst {getattr(worst, field):.2f} (N={worst.n}, d={worst.d})"


def table(cells: Sequence[Cell], field: str) -> str:
    """A plain-text grid of ratios: rows N, columns d."""
    ratio = {(c.n, c.d): getattr(c, field) for c in cells}
    rows, columns = sorted({c.n for c in cells}), sorted({c.d for c in cells})
    lines = ["N \\ d" + "".join(f"{d:>8}" for d in columns)]
    return "\n".join(lines + [f"{n:>5}" + "".join(f"{ratio[n, d]:>8.2f}" for d in columns) for n in rows])


def main(argv: Sequence[str] = ()) -> list[Cell]:
    """Measures the grid, prints both tables with their median and named worst case, and returns the cells."""
    parser = argparse.ArgumentParser(prog="benchmark ops", description=__doc__.splitlines()[0])
    parser.add_argument("--smallest", type=int, default=16, help="smallest N and d (power of two)")
    parser.add_argument("--largest", type=int, default=2048, help="largest N and d (power of two)")
    parser.add_argument("--turns", type=int, default=9, help="paired repeats in a cell")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of timing in a cell")
    args = parser.parse_args(argv)
    if not 0 < args.smallest <= args.largest:
        parser.error(f"--smallest must be positive and at most --largest, got {args.smallest} and {args.largest}")
    if args.turns < 1:
        parser.error(f"--turns must be at least 1, got {args.turns}")
    sizes = [2 ** i for i in range(32) if args.smallest <= 2 ** i <= args.largest]
    cells = [measure(n, d, args.turns, args.budget) for n, d in itertools.product(sizes, sizes)]
    print(f"time of Intention / time of softmax attention, M = N, k = d, float32, {jax.devices()[0].device_kind}")
    for field in ("intention", "plain"):
        print(f"\n{field}: {summary(cells, field)}\n{table(cells, field)}")
    return cells


if __name__ == "__main__":
    main(sys.argv[1:])
