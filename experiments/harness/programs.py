"""Programs that are measured and not run for their results: their memory, their operations and their time."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.harness import timing
from kvq_jax.ops.attention import scores_together


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A function and the shapes of its arguments; lowered and compiled once, by the first who asks."""

    run: Callable
    arguments: tuple

    @functools.cached_property
    def lowered(self) -> jax.stages.Lowered:
        return jax.jit(self.run).lower(*self.arguments)

    @functools.cached_property
    def compiled(self) -> jax.stages.Compiled:
        return self.lowered.compile()

    def call(self) -> Callable[[], Any]:
        """A function that runs it on arguments of ones."""
        return functools.partial(self.compiled, *ones(self.arguments))


def memory(program: Program) -> int:
    """Bytes that the compiled program needs beside its arguments and its result, by the compiler.

    The compiler does not count what YNNPACK holds, to which XLA hands parts of a program on a CPU: attention over about
    a thousand keys and more with all its scores. A program with such parts is compiled without them.
    """
    compiled = program.compiled
    if "__ynn_fusion" in compiled.as_text():
        compiled = program.lowered.compile({"xla_cpu_experimental_ynn_fusion_type": ""})
    return compiled.memory_analysis().temp_size_in_bytes


def operations(program: Program) -> float:
    """Floating-point operations of a call, as the compiler counts them before it optimises: of a loop one round."""
    with scores_together():
        afresh = lambda *arguments: program.run(*arguments)  # what JAX has traced, it does not trace again
        return jax.jit(afresh).lower(*program.arguments).cost_analysis()["flops"]


def seconds(program: Program, turns: int, budget_s: float, clock: str = "wall") -> float:
    """Time of a call on arguments of ones, the median of `turns`; repeated calls fill `budget_s` seconds.

    The clock is a name of timing.CLOCKS.
    """
    times = timing.interleaved([program.call()], turns, budget_s, clock)
    return timing.seconds(times, 0)


def ones(tree: Any) -> Any:
    """The tree with an array of ones for each shape."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.ones(leaf.shape, leaf.dtype), tree)
