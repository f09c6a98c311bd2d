"""Processes on cores of their own, which prepare a measurement and make it whenever they are asked."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence

from experiments.harness.placement import on_cores

Worker = subprocess.Popen


def start(serve: Callable[..., None], *arguments: object, cores: set[int]) -> Worker:
    """A process on `cores` that calls `serve`, a function of a module, which ends with `answer`.

    The arguments are numbers and strings.
    """
    code = f"from {serve.__module__} import {serve.__name__}; {serve.__name__}(*{arguments!r})"
    with on_cores(cores):
        return Worker([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait(workers: Iterable[Worker]) -> None:
    """Until all have prepared."""
    for worker in workers:
        worker.stdout.readline()


def ask(workers: Sequence[Worker]) -> list[tuple[float, ...]]:
    """What each of them finds, measuring at the same time."""
    for worker in workers:
        print(file=worker.stdin, flush=True)
    return [tuple(map(float, worker.stdout.readline().split())) for worker in workers]


def end(workers: Iterable[Worker]) -> None:
    for worker in workers:
        worker.communicate()


def answer(measure: Callable[[], Sequence[float]]) -> None:
    """In a worker: says that it has prepared, and measures whenever it is asked."""
    print("ready", flush=True)
    for _ in sys.stdin:
        print(*measure(), flush=True)
