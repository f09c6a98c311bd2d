"""Time of Intention over time of softmax attention, M = N, for one value column and for k = d (Garnelo and Czarnecki
2023, Figure 5).

Each cell times three jitted functions in turns (attention, Intention, attention, plain, ...), so that whatever else the
machine does falls on all of them, and reports the median over turns of the ratio of neighbours. One column is the
regression of the paper's experiments; with k = d and N = d, least squares has twice the products of attention, whatever
the route. The grid has the widths of heads in use and contexts from a few points to thousands. Intention gains with N /
d, where attention's N x N scores become a d x d system; its worst cases lie at N = d, where that system is as large as
the scores and its factorisation, a third of the work, is a library call on one thread beside attention's products on
all of them.

`plain` is the choice that the paper writes down: primal if d < N, else dual, by one library Cholesky factorisation and
solve. On CPUs the library is OpenBLAS, whose threads stall where other processes share the cores: set
OPENBLAS_NUM_THREADS=1 for a steady `plain`.
"""

import functools
import itertools
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.harness import timing
from kvq_jax.ops import intention, softmax_attention

Array = jax.Array

_POINTS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_WIDTHS = (16, 32, 64, 128, 256, 512)
_TURNS, _BUDGET_S = 9, 0.5


class Cell(NamedTuple):
    n: int
    d: int
    attention_ms: float
    intention: float  # ratio to attention
    plain: float  # ratio to attention


def plain_intention(query: Array, key: Array, value: Array, alpha: float = 1e-3) -> Array:
    """Intention with the smaller of the two systems and nothing else chosen: the bar to beat."""
    n, d = key.shape
    if d < n:
        gram = key.T @ key + alpha * jnp.eye(d)
        return query @ jax.scipy.linalg.solve(gram, key.T @ value, assume_a="pos")
    gram = key @ key.T + alpha * jnp.eye(n)
    return query @ key.T @ jax.scipy.linalg.solve(gram, value, assume_a="pos")


def inputs(n: int, d: int, k: int) -> tuple[Array, Array, Array]:
    """query [n, d], key [n, d], value [n, k]; queries are scaled so that the scores of attention have variance 1."""
    shapes = (n, d), (n, d), (n, k)
    seeds = jax.random.split(jax.random.key(0), 3)
    query, key, value = (jax.random.normal(seed, shape) for seed, shape in zip(seeds, shapes))
    return query / d**0.5, key, value


def measure(n: int, d: int, k: int, turns: int = _TURNS, budget_s: float = _BUDGET_S) -> Cell:
    """One cell of the grid, in about `budget_s` seconds plus compilation."""
    attention, ours, plain = (
        functools.partial(jax.jit(f), *inputs(n, d, k)) for f in (softmax_attention, intention, plain_intention)
    )
    times = timing.interleaved([attention, ours, attention, plain], turns, budget_s)
    return Cell(n, d, 1e3 * timing.seconds(times, 0), timing.ratio(times, 1, 0), timing.ratio(times, 3, 2))


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


def main(
    points: Sequence[int] = _POINTS, widths: Sequence[int] = _WIDTHS, turns: int = _TURNS, budget_s: float = _BUDGET_S
) -> list[Cell]:
    """Measures both grids, prints their tables with their median and named worst case, and returns the cells.

    Each of `points` is an N, each of `widths` a d; a cell takes `turns` paired repeats in about `budget_s` seconds.
    The cells with one value column come first, then those with d.
    """
    every, device = [], jax.devices()[0].device_kind
    for columns in ("1", "d"):
        sizes = [(n, d, 1 if columns == "1" else d) for n, d in itertools.product(points, widths)]
        cells = [measure(*size, turns, budget_s) for size in sizes]
        print(f"time of Intention / time of softmax attention, M = N, k = {columns}, float32, {device}")
        for field in ("intention", "plain"):
            print(f"\n{field}: {summary(cells, field)}\n{table(cells, field)}\n")
        every += cells
    return every
