"""Measures speed and memory as ratios within one run: python -m scripts.benchmark NAME [NAME ...]

NAME is one of accuracy, experiments, harness, np, ops, streaming. Absolute times depend on the machine and its load;
every claim about speed is a ratio of times measured in turns.
"""

import importlib
import sys

from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.settings import choose

# name -> module with main(), which measures and prints.
_NAMES = ("accuracy", "experiments", "harness", "np", "ops", "streaming")
_BENCHMARKS = {name: f"scripts.benchmarks.{name}" for name in _NAMES}


def main(argv: list[str]) -> int:
    """Runs the benchmarks named in argv[1:] and returns the exit code."""
    return command_line.guarded(_run, argv, cache=False)


def _run(argv: list[str]) -> None:
    if len(argv) < 2:
        raise UserError(f"name a benchmark: {', '.join(_BENCHMARKS)}")
    modules = [choose(_BENCHMARKS, name, "benchmark") for name in argv[1:]]
    for module in modules:
        importlib.import_module(module).main()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
