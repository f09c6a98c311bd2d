"""What the harness gains on one model: scan over a Python loop, vmapped seeds over one, a warm compilation cache.

From the command to the first step: Python, imports, tracing, compiling and the step, in a process of its own.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp

from configs.intention import sine
from configs.neural_processes import gp
from experiments.harness import timing
from experiments.harness.step import Program
from scripts.benchmarks import training

_ARG = "model=neural_process,preset=tiny"
_STEPS, _SEEDS, _REPEATS = 200, 5, 7
_STARTS = (
    (sine, "model=neural_process,preset=quick"),
    (gp, "model=tnp_d,preset=quick"),
    (gp, "model=cmanp,preset=quick"),
)


def main() -> None:
    """Prints the comparisons."""
    runs = [_trainer(seeds, chunk) for seeds, chunk in ((1, 1), (1, _STEPS), (_SEEDS, _STEPS))]
    times = timing.interleaved(runs, _REPEATS)
    loop, scan, seeds = (_STEPS / timing.seconds(times, index) for index in range(3))
    print(f"harness, {sine.__name__} {_ARG}, {_STEPS} steps, {jax.devices()[0].device_kind}")
    print(f"python loop       {loop:8.0f} steps/s")
    print(f"scan              {scan:8.0f} steps/s   {timing.ratio(times, 0, 1):.2f} times the python loop")
    gain = _SEEDS * timing.ratio(times, 1, 2)
    print(f"{_SEEDS} vmapped seeds   {_SEEDS * seeds:8.0f} seed-steps/s   {gain:.2f} times one seed")
    for module, arg in _STARTS:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (_first_step(module, arg, cache) for _ in range(2))
        times = f"cache of programs cold {cold:.1f} s, warm {warm:.1f} s: {cold / warm:.1f} times as fast"
        print(f"from the command to the first step, {module.__name__} {arg}: {times}")


def make(seeds: int, chunk_steps: int) -> Program:
    """The program of the measured run."""
    config = sine.get_config(_ARG)
    return training.program(training.build(config), config, seeds, chunk_steps)


def first_step(module: str, arg: str) -> None:
    """Makes one step of a config, from nothing."""
    config = importlib.import_module(module).get_config(arg)
    program = training.program(training.build(config), config, 1, 1)
    jax.block_until_ready(program.chunk(program.init(jnp.arange(1, dtype=jnp.uint32)), None))


def _trainer(seeds: int, chunk_steps: int) -> Callable[[], object]:
    """A function that makes _STEPS steps of every seed and returns their losses."""
    program = make(seeds, chunk_steps)
    state = program.init(jnp.arange(seeds, dtype=jnp.uint32))

    def run():
        nonlocal state
        for _ in range(_STEPS // chunk_steps):
            state, metrics, _ = program.chunk(state, None)
        return metrics

    return run


def _first_step(module: ModuleType, arg: str, cache: str) -> float:
    """Seconds of first_step() in a process of its own, from its start, that keeps compiled programs in `cache`."""
    code = f"from scripts.benchmarks import harness; harness.first_step({module.__name__!r}, {arg!r})"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return time.perf_counter() - start
