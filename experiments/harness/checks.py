"""What is checked of a run before its folder is opened: every program of it is traced.

A trace takes the shapes of arrays and computes nothing. JAX keeps it, so that what is traced here is not traced again
when the run compiles it: a run takes no longer, its first step comes later. The evaluation in many size classes is half
as long as the rest of the start.
"""

import math
from collections.abc import Mapping

import jax
import numpy as np

from experiments.harness.errors import ConfigError, first_line
from experiments.harness.experiment import PyTree
from experiments.harness.placement import memory_bytes
from experiments.harness.step import Program


def check_programs(
    program: Program, seeds: np.ndarray, data: Mapping[str, PyTree], shares: int = 1, trains: bool = True
) -> None:
    """Raises ConfigError where a program of the run cannot be made, or its state is larger than the memory.

    Args:
      program: of the run.
      seeds: all seeds, [S].
      data: those of the splits, on the device.
      shares: devices over which the seeds are split.
      trains: False where given weights are only evaluated.
    """
    state = _traced("config.model", program.init, seeds)
    held = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    if held / shares > memory_bytes():
        raise ConfigError(f"config.model: the state of training takes {held / 2**30:.1f} GiB, more than there are")
    if trains:
        _traced("the training", program.chunk, state, data["train"])
        _traced("the validation", program.validate, state, data["validation"])
    _traced("the examples", program.examples, state, data["test"])
    _traced("the evaluation", program.evaluate, state, data["test"], 0)


def check_memory(compiled: jax.stages.Compiled, what: str) -> None:
    """Raises ConfigError, naming `what`, where a program takes more memory than there is by the compiler's count.

    On a CPU it does not count what YNNPACK holds: see programs.memory.
    """
    sizes, there = compiled.memory_analysis(), memory_bytes()
    taken = sizes and (
        sizes.argument_size_in_bytes
        + sizes.output_size_in_bytes
        + sizes.temp_size_in_bytes
        - sizes.alias_size_in_bytes  # of arguments that become outputs
    )
    if taken and taken > there:
        gib = [f"{number / 2**30:.1f} GiB" for number in (taken, there)]
        raise ConfigError(f"{what} takes {gib[0]} of memory, and there are {gib[1]}")


def _traced(what: str, program, *arguments) -> PyTree:
    """The shapes of what a program returns."""
    try:
        return program.eval_shape(*arguments)
    except Exception as error:  # of the model, the task, Flax or JAX: what cannot be traced, cannot be run
        message = f"{what}: {first_line(error)}" if what.startswith("config.") else f"config: {what}: {_told(error)}"
        raise ConfigError(message) from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
