"""Measures speed and memory as ratios within one run: python -m scripts.benchmark NAME [NAME ...]

NAME is one of accuracy, evaluation, experiments, harness, images, np, ops, streaming. Absolute times depend on the
machine and its load; every claim about speed is a ratio of times measured in turns.
"""

import importlib
import sys

from experiments.harness import command_line
from experiments.harness.errors import UserError
from kvq_jax.names import unknown

# Modules of scripts.benchmarks; main() of each measures and prints.
_NAMES = ("accuracy", "evaluation", "experiments", "harness", "images", "np", "ops", "streaming")


def _run(argv: list[str]) -> None:
    if len(argv) < 2:
        raise UserError(f"name a benchmark: {', '.join(_NAMES)}")
    for name in argv[1:]:
        if name not in _NAMES:
            raise UserError(unknown("benchmark", name, _NAMES))
    for name in argv[1:]:
        importlib.import_module(f"scripts.benchmarks.{name}").main()


if __name__ == "__main__":
    sys.exit(command_line.guarded(_run, sys.argv, cache=False))
