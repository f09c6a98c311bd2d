"""Time of Intention over time of softmax attention, M = N, for one value column and for k = d (Garnelo and Czarnecki
2023, Figure 5).

Each cell times three jitted functions in turns (attention, Intention, attention, plain, ...), so that whatever else the
machine does falls on all of them, and reports the median over turns of the ratio of neighbours. One column is the
regression of the paper's experiments; with k = d and N = d, least squares has twice the products of attention, whatever
the route. The grid has the widths of heads in use and contexts from a few points to thousands. Intention gains with N /
d, where attention's N x N scores become a d x d system; its worst cases lie at N = d, where that system is as large as
the scores and its factorisation, a third of the work, is a library call on one thread beside attention's products on
all of them.

Other operators follow, at sizes of few-shot tasks and with their default options: `constrained_intention` solves a
system for every column at every step of its search, `qda` one for every class, and `kernel_intention` takes the
distance of every pair. They are timed alone with one column, and in a batch of heads with k = d; `qda` has five
classes.

Last come the attention of jax.nn and its gradient over ours, for heads of several sets. On a CPU ours computes large
matrices of scores in turn.

`plain` is the choice that the paper writes down: primal if d < N, else dual, by one library Cholesky factorisation and
solve. On CPUs the library is OpenBLAS, whose threads stall where other processes share the cores: set
OPENBLAS_NUM_THREADS=1 for a steady `plain`.
"""

import functools
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments.harness import timing
from kvq_jax.ops import constrained_intention, intention, kernel_intention, qda, softmax_attention

Array = jax.Array

_POINTS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_WIDTHS = (16, 32, 64, 128, 256, 512)
_TURNS, _BUDGET_S = 9, 0.5
_FEW_POINTS, _FEW_WIDTHS, _HEADS, _CLASSES = (16, 64, 256), (16, 64), 8, 5
_SETS, _SET_POINTS = 8, (64, 256, 512, 1024)


class Cell(NamedTuple):
    n: int
    d: int
    attention_ms: float
    ratio: dict[str, float]  # of each operator's time to attention's


def plain_intention(query: Array, key: Array, value: Array, alpha: float = 1e-3) -> Array:
    """Intention with the smaller of the two systems and nothing else chosen: the bar to beat."""
    n, d = key.shape
    if d < n:
        gram = key.T @ key + alpha * jnp.eye(d)
        return query @ jax.scipy.linalg.solve(gram, key.T @ value, assume_a="pos")
    gram = key @ key.T + alpha * jnp.eye(n)
    return query @ key.T @ jax.scipy.linalg.solve(gram, value, assume_a="pos")


_INTENTIONS = {"intention": intention, "plain": plain_intention}
_LIBRARY = functools.partial(softmax_attention, implementation="xla")
_OTHERS = {"constrained_intention": constrained_intention, "kernel_intention": kernel_intention}


def inputs(n: int, d: int, k: int, heads: tuple[int, ...] = ()) -> tuple[Array, Array, Array]:
    """query and key [*heads, n, d], value [*heads, n, k]; the scores of attention have variance 1."""
    shapes = (*heads, n, d), (*heads, n, d), (*heads, n, k)
    seeds = jax.random.split(jax.random.key(0), 3)
    query, key, value = (jax.random.normal(seed, shape) for seed, shape in zip(seeds, shapes))
    return query / d**0.5, key, value


def labelled(n: int, d: int, heads: tuple[int, ...] = ()) -> tuple[Array, Array, Array]:
    """`inputs` whose values are one-hot labels of classes of equal size."""
    query, key, value = inputs(n, d, _CLASSES, heads)
    return query, key, jnp.broadcast_to(jnp.eye(_CLASSES)[jnp.arange(n) % _CLASSES], value.shape)


def gradient(operator: Callable[..., Array]) -> Callable[..., tuple[Array, ...]]:
    """(query, key, value) -> the gradient of the sum of the operator's output by all three."""
    return jax.grad(lambda *arrays: operator(*arrays).sum(), argnums=(0, 1, 2))


def measure(
    operators: Mapping[str, Callable[..., Array]],
    arrays: tuple[Array, Array, Array],
    turns: int = _TURNS,
    budget_s: float = _BUDGET_S,
    base: Callable[..., Array] = softmax_attention,
) -> Cell:
    """One cell of a grid, of times over that of `base`, in about `budget_s` seconds plus compilation."""
    attention, *others = (functools.partial(jax.jit(f), *arrays) for f in (base, *operators.values()))
    times = timing.interleaved([f for other in others for f in (attention, other)], turns, budget_s)
    ratio = {name: timing.ratio(times, 2 * i + 1, 2 * i) for i, name in enumerate(operators)}
    return Cell(*arrays[1].shape[-2:], 1e3 * timing.seconds(times, 0), ratio)


def summary(cells: Sequence[Cell], name: str) -> str:
    """'median 0.71, worst 2.10 (N=512, d=512)' of the ratios of an operator."""
    worst = max(cells, key=lambda c: c.ratio[name])
    median = statistics.median(c.ratio[name] for c in cells)
    return f"median {median:.2f}, worst {worst.ratio[name]:.2f} (N={worst.n}, d={worst.d})"


def table(cells: Sequence[Cell], name: str) -> str:
    """A plain-text grid of ratios: rows N, columns d."""
    ratio = {(c.n, c.d): c.ratio[name] for c in cells}
    rows, columns = sorted({c.n for c in cells}), sorted({c.d for c in cells})
    lines = ["N \\ d" + "".join(f"{d:>8}" for d in columns)]
    return "\n".join(lines + [f"{n:>5}" + "".join(f"{ratio[n, d]:>8.2f}" for d in columns) for n in rows])


def main(
    points: Sequence[int] = _POINTS,
    widths: Sequence[int] = _WIDTHS,
    few_points: Sequence[int] = _FEW_POINTS,
    few_widths: Sequence[int] = _FEW_WIDTHS,
    set_points: Sequence[int] = _SET_POINTS,
    turns: int = _TURNS,
    budget_s: float = _BUDGET_S,
) -> list[Cell]:
    """Measures the grids, prints their tables with their median and named worst case, and returns the cells.

    Each of `points` is an N, each of `widths` a d; `few_points` and `few_widths` are those of the other operators,
    `set_points` those of the attention of several sets. A cell takes `turns` paired repeats in about `budget_s`
    seconds. The cells of Intention with one value column come first, then those with d, then those of the other
    operators, alone and in heads, and then those of the library's attention, forward and gradient.
    """
    every, device = [], jax.devices()[0].device_kind

    def grid(operators, title, points, widths, arrays, base=softmax_attention):
        cells = [measure(operators, arrays(n, d), turns, budget_s, base) for n, d in itertools.product(points, widths)]
        print(f"time of {title}, float32, {device}")
        for name in operators:
            print(f"\n{name}: {summary(cells, name)}\n{table(cells, name)}\n")
        every.extend(cells)

    over = "/ time of softmax attention, M = N, k ="
    grid(_INTENTIONS, f"Intention {over} 1", points, widths, lambda n, d: inputs(n, d, 1))
    grid(_INTENTIONS, f"Intention {over} d", points, widths, lambda n, d: inputs(n, d, d))
    few, heads = (few_points, few_widths), (_HEADS,)
    grid(_OTHERS, f"other operators {over} 1", *few, lambda n, d: inputs(n, d, 1))
    grid(_OTHERS, f"other operators, {_HEADS} heads, {over} d", *few, lambda n, d: inputs(n, d, d, heads))
    grid({"qda": qda}, f"QDA {over} {_CLASSES}", *few, labelled)
    grid({"qda": qda}, f"QDA, {_HEADS} heads, {over} {_CLASSES}", *few, lambda n, d: labelled(n, d, heads))
    sets = set_points, few_widths, lambda n, d: inputs(n, d, d, (_SETS, _HEADS))
    title = f"jax.nn's attention, {_HEADS} heads of {_SETS} sets, {over} d"
    grid({"forward": _LIBRARY}, title, *sets)
    grid({"gradient": gradient(_LIBRARY)}, title, *sets, gradient(softmax_attention))
    return every
