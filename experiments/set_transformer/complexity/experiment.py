"""Measures blocks of the Set Transformer by the number of elements (Lee et al. 2019, Sections 3.1 and 3.2).

The paper says that SAB takes O(n^2) and ISAB O(n m), with m inducing points, and draws the time of either in Figure 1
of its supplement. Here one set of n elements passes through a block, or through it and back for the gradient of the
mean square of its output. A result has a metric '<quantity>/<phase>/<block>@<n>' for each: operations as the compiler
counts them, the bytes that the compiled program needs beside its arguments and its result, and seconds. The fact
`too_large` lists the '<phase>/<block>@<n>' that do not fit in memory and were not run.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.harness import settings, timing
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import Summary, single
from experiments.harness.placement import free_memory, on_cpu
from experiments.harness.programs import Program, memory, operations, seconds
from kvq_jax.domains import Count, Increasing, NotNegative
from kvq_jax.nn import ISAB, PMA, SAB

SECTIONS = ("blocks", "measurement")
BLOCKS = {"sab": SAB, "isab": ISAB, "pma": PMA}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The config's `measurement` section."""

    sizes: Increasing  # elements of a set
    features: Count  # of an element
    phases: tuple[str, ...]  # names of PHASES
    turns: Count  # of a timing, which is their median
    budget_s: NotNegative  # seconds to spend on a timing
    clock: str  # a name of timing.CLOCKS

    def __post_init__(self):
        settings.choose(timing.CLOCKS, self.clock, "clock")
        if 0 in self.sizes:
            raise ValueError("sizes: a set without elements")
        for phase in self.phases:
            settings.choose(PHASES, phase, "phase")


def forward(block: nn.Module, n: int, features: int) -> Program:
    """(variables, set [n, features]) -> output of the block."""
    x = jax.ShapeDtypeStruct((n, features), jnp.float32)
    return Program(block.apply, (jax.eval_shape(block.init, jax.random.key(0), x), x))


def gradient(block: nn.Module, n: int, features: int) -> Program:
    """(variables, set [n, features]) -> gradient of the mean square of the output by the variables."""
    loss = lambda variables, x: jnp.square(block.apply(variables, x)).mean()
    return Program(jax.grad(loss), forward(block, n, features).arguments)


# Phase -> (block, elements, features) -> its program.
PHASES = {"forward": forward, "gradient": gradient}


def measure(config: ConfigDict) -> tuple[dict[str, Summary], dict[str, np.ndarray], dict[str, list[str]]]:
    """Metrics, no arrays, and what did not fit in memory. Raises ConfigError before anything is measured."""
    how = settings.build(Measurement, config.measurement, "config.measurement")
    if how.clock == "processor" and not on_cpu():
        raise ConfigError(f"config.measurement.clock: 'processor' does not see the work of a {jax.default_backend()}")
    blocks = {
        name: settings.build_named(BLOCKS, section, f"config.blocks.{name}") for name, section in config.blocks.items()
    }
    metrics, too_large = {}, []
    # The whole list first: a set that a block cannot take is an error before minutes are spent on others.
    programs = {
        f"{phase}/{name}@{n}": PHASES[phase](block, n, how.features)
        for n in how.sizes
        for phase in how.phases
        for name, block in blocks.items()
    }
    for line, program in programs.items():
        needed = memory(program)
        metrics |= {f"operations/{line}": single(operations(program)), f"memory/{line}": single(needed)}
        if needed > free_memory():
            too_large.append(line)
            continue
        metrics[f"time/{line}"] = single(seconds(program, how.turns, how.budget_s, how.clock))
    return metrics, {}, {"too_large": too_large}
