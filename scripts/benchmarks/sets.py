"""Blocks of the Set Transformer by the number of elements, and amortised clustering beside EM.

A step of a block is its gradient for one set, and a step of gradient descent. SAB, ISAB with 16 inducing points and PMA
with 4 seeds, of width 128 with 4 heads, are timed in turns with flax.linen's attention of that width, of the set over
itself. `flops` are the operations of a step as the compiler counts them: those of SAB grow with the square of n, those
of ISAB and PMA with n. What does not fit in memory is not run.

Clustering is that of clustering.py as it is configured, with ISABs: the network and a step of EM on a batch of sets of
the largest size, in turns with scikit-learn's GaussianMixture from one start of k-means++, and from as many as the
evaluation takes. The parameters are not trained: the time does not depend on them. Compiling is not counted.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from configs.set_transformer import clustering
from experiments.harness import programs, settings, timing
from experiments.harness.placement import free_memory
from experiments.set_transformer.clustering import host
from experiments.tasks.mixtures import Mixtures
from kvq_jax.models import SET_NETWORKS
from kvq_jax.models.mixture import em_step, mixture_of
from kvq_jax.nn import ISAB, PMA, SAB

_POINTS, _WIDTH, _HEADS, _SETS = (100, 300, 1000, 3000, 10_000), 128, 4, 10
_TURNS, _BUDGET_S, _RATE = 5, 4.0, 1e-3
_BLOCKS = {
    "SAB": functools.partial(SAB, num_heads=_HEADS),
    "ISAB (16)": functools.partial(ISAB, num_heads=_HEADS, num_inducing=16),
    "PMA (4)": functools.partial(PMA, num_heads=_HEADS, num_seeds=4),
}


class Step(NamedTuple):
    """A compiled step of a block, its operations as the compiler counts them, and whether it fits in memory."""

    run: Callable[[], object]
    flops: float
    fits: bool


def main(
    points: Sequence[int] = _POINTS,
    width: int = _WIDTH,
    sizes: Sequence[str] = tuple(clustering.SIZES),
    preset: str = "paper",
    budget_s: float = _BUDGET_S,
) -> None:
    """Prints a line for each block at each number of points, and one for each size of sets to be clustered."""
    print(f"a step of a block of width {width}, one set, float32, {jax.devices()[0].device_kind}")
    print(f"{'':12}{'n':>7}{'steps/s':>10}{'GFLOP':>9}{'time / flax attention':>23}")
    for n in points:
        print("\n".join(block_lines(n, width, budget_s)))
    for size in sizes:
        print(_clustering_line(size, preset, budget_s))


def block_lines(n: int, width: int, budget_s: float) -> list[str]:
    """A line for each of _BLOCKS at n elements, and one for flax's attention."""
    attention = nn.MultiHeadDotProductAttention(_HEADS, qkv_features=width)
    steps = {"flax": step_of(attention, n, width)} | {
        name: step_of(of(width), n, width) for name, of in _BLOCKS.items()
    }
    runs = {name: step.run for name, step in steps.items() if step.fits}
    times = timing.interleaved(list(runs.values()), _TURNS, budget_s) if runs else []
    lines = []
    for name, step in steps.items():
        if name not in runs:
            lines.append(f"{name:12}{n:7}  does not fit in memory")
            continue
        place = list(runs).index(name)
        ratio = f"{timing.ratio(times, place, 0):.3f}" if "flax" in runs else ""
        lines.append(f"{name:12}{n:7}{1 / timing.seconds(times, place):10.3g}{step.flops / 1e9:9.3g}{ratio:>23}")
    return lines


def step_of(block: nn.Module, n: int, width: int) -> Step:
    """A step of a block on one set of n elements, compiled."""
    program = step_program(block, n, width)
    fits = programs.memory(program) < free_memory()
    return Step(functools.partial(program.compiled, *program.arguments), programs.operations(program), fits)


def step_program(block: nn.Module, n: int, width: int) -> programs.Program:
    """parameters -> those after a step of a block on one set of n elements [n, width]."""
    x = jax.random.normal(jax.random.key(0), (n, width))
    variables = jax.jit(block.init)(jax.random.key(1), x[:2])

    def step(variables):
        gradient = jax.grad(lambda variables: jnp.square(block.apply(variables, x)).mean())(variables)
        return jax.tree.map(lambda old, slope: old - _RATE * slope, variables, gradient)

    return programs.Program(step, (variables,))


def _clustering_line(size: str, preset: str, budget_s: float) -> str:
    config = clustering.get_config(f"model=isab16_pma,size={size},preset={preset}")
    task = settings.build(Mixtures, config.task, "config.task")
    model = settings.build_named(SET_NETWORKS, config.model, "config.model")
    x = jax.vmap(lambda key: task.draw(key, None).x)(jax.random.split(jax.random.key(0), _SETS))
    variables = jax.jit(model.init)(jax.random.key(1), x[0])
    found = jax.jit(lambda variables, x: em_step(mixture_of(model.apply(variables, x), task.dimension), x))
    points, starts = np.asarray(x), config.evaluation.em_starts
    ems = [lambda starts=starts: host.fit(points[0], task.clusters, starts).means_ for starts in (1, starts)]
    times = timing.interleaved([lambda: found(variables, x), *ems], _TURNS, budget_s)
    own, one, many = (1e3 * timing.seconds(times, place) for place in range(3))
    return (
        f"clustering {task.max_size} points, {task.clusters} clusters: network and a step of EM {own / _SETS:.2f} ms a "
        f"set ({_SETS} at once); GaussianMixture {one:.1f} ms from one start, {_SETS * timing.ratio(times, 1, 0):.1f} "
        f"times as long, {many:.1f} ms from {starts}, {_SETS * timing.ratio(times, 2, 0):.1f} times"
    )
