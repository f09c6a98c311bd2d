"""Measures speed and memory as ratios within one run: python -m scripts.benchmark NAME [NAME ...]

NAME is one of accuracy, evaluation, events, experiments, harness, images, np, ops, published, sets, streaming. All
models of np take more than an hour: np:cnp,tnp_d measures these two; evaluation, images and published take models
likewise. Absolute times depend on the machine and its load; every claim about speed is a ratio of times measured in
turns.
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable

from configs.neural_processes import gp
from experiments.harness import command_line
from experiments.harness.errors import UserError
from kvq_jax.names import choose

# Modules of scripts.benchmarks; main() of each measures and prints.
_NAMES = (
    "accuracy",
    "evaluation",
    "events",
    "experiments",
    "harness",
    "images",
    "np",
    "ops",
    "published",
    "sets",
    "streaming",
)


def _run(argv: list[str]) -> None:
    if len(argv) < 2:
        raise UserError(f"name a benchmark: {', '.join(_NAMES)}")
    for main in [_main(argument) for argument in argv[1:]]:
        main()


def _main(argument: str) -> Callable[[], object]:
    """What measures NAME, or NAME:MODEL,...; raises UserError."""
    name, colon, models = argument.partition(":")
    choose(dict.fromkeys(_NAMES), name, "benchmark", UserError)
    main = importlib.import_module(f"scripts.benchmarks.{name}").main
    if not colon:
        return main
    if "models" not in inspect.signature(main).parameters:
        raise UserError(f"{argument}: the benchmark {name} has no models to choose from")
    for model in models.split(","):
        choose(dict.fromkeys(gp.MODELS), model, "model", UserError)
    return functools.partial(main, models=models.split(","))


if __name__ == "__main__":
    sys.exit(command_line.guarded(_run, sys.argv, cache=False))
