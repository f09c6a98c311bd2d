"""Neural processes at the published GP setting: training, conditioning and querying, acting.

Training: batch 16, N = M = 25, published widths (CMANP and LBANP with 128 latents), sampling of the functions included.
The columns are milliseconds of a step of one seed; of each of five seeds, at once (vmap) and in turn; and of one seed
on each core, in processes of their own, as `sweep --workers` runs cells: the time of a step over the number of cores.
Beside them is the time of a step of the published PyTorch code without sampling, on two cores of another machine:
quoted, not measured.

Floating-point work is the compiler's count for one step. Its rate is compared with that of matrix products measured in
this run, of the shape of most products in these models, (800 x 64) (64 x 256).
"""

import functools
import itertools
import statistics
import subprocess
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from configs.neural_processes import gp, wheel
from experiments.harness import settings, timing
from experiments.harness.placement import on_cores, shares_of_cores
from kvq_jax.models import MODELS, Points
from kvq_jax.models.neural_processes import condition_made, has_state
from scripts.benchmarks import training

_POINTS, _SEEDS, _STEPS, _TURNS, _BUDGET_S = 25, 5, 20, 5, 1.0
# Milliseconds of a training step of the released PyTorch code (BorealisAI/constant-memory-anp) here, on two cores.
PUBLISHED_MS = {
    **dict(cnp=6.1, canp=13.4, np=14.8, anp=25.0, bnp=26.1, banp=67.5, tnp_d=19.9, tnp_a=29.3, tnp_nd=25.9),
    **dict(eqtnp=29.1, lbanp=117.0, lbanp_nd=122.0, cmanp=233.0, cmanp_and=243.0),
}
_CONDITIONED = ("cnp", "intention_anp", "lbanp", "cmanp", "intention_cmanp")
_LENGTHS, _CHUNK, _TARGETS = (100, 1000, 10_000, 100_000), 1000, 100
_SEEN = (1_000, 1_000_000)
_PLAYERS = {"cnp": 200, "intention_anp": 200, "tnp_d": 50, "cmanp": 20}  # rounds, so that each takes about a second


def main(models: Sequence[str] = gp.MODELS, preset: str = "paper", budget_s: float = _BUDGET_S) -> None:
    """Prints all three parts for some models of a preset."""
    rate = matmul_rate(budget_s)
    print(
        f"neural processes, preset {preset}, batch 16, N = M = {_POINTS}, float32, {jax.devices()[0].device_kind}; "
        f"(800 x 64) (64 x 256): {rate / 1e9:.0f} GFLOP/s"
    )
    print(
        f"{'ms a step of one seed':>25}{f'of {_SEEDS} at once':>14}{'in turn':>9}{'on each core':>14}{'GFLOP':>8}"
        f"{'of rate':>9}{'published ms':>14}{'times as fast':>32}"
    )
    for model in models:
        print(_training_line(model, preset, rate, budget_s))
    conditioned = [model for model in _CONDITIONED if model in models]
    for model, length in itertools.product(conditioned, _LENGTHS):
        print(_conditioning_line(model, preset, length, budget_s))
    for model in conditioned:
        print(_update_line(model, preset, budget_s))
    for model in (model for model in _PLAYERS if model in models):
        print(_bandit_line(model, preset))


def matmul_rate(budget_s: float) -> float:
    """Floating-point operations per second of the matrix product that these models mostly make."""
    x, kernel, repeats = jnp.ones((800, 64)), jnp.ones((64, 256)), 50

    @jax.jit
    def products(x, kernel):
        return jax.lax.fori_loop(0, repeats, lambda _, x: (x @ kernel)[:, :64] * 1e-2, x)

    times = timing.interleaved([functools.partial(products, x, kernel)], _TURNS, budget_s)
    return repeats * 2 * 800 * 64 * 256 / timing.seconds(times, 0)


def trainer(model: str, preset: str, seeds: int, chunk_steps: int, placement: str = "single") -> training.Trainer:
    """Training at the published GP setting."""
    config = gp.get_config(f"model={model},preset={preset}")
    config.task.update(min_context=_POINTS, max_context=_POINTS, min_targets=_POINTS, max_points=2 * _POINTS)
    return training.trainer(training.build(config), config, seeds, chunk_steps, placement)


def _training_line(model: str, preset: str, rate: float, budget_s: float) -> str:
    cases = ((1, "single"), (_SEEDS, "single"), (_SEEDS, "in_turn"))
    trainers = [trainer(model, preset, seeds, _STEPS, placement) for seeds, placement in cases]
    times = timing.interleaved([each.run for each in trainers], _TURNS, 3 * budget_s)
    per_seed = [timing.seconds(times, case) / _STEPS / seeds for case, (seeds, _) in enumerate(cases)]
    per_seed.append(_seconds_on_each_core(model, preset, budget_s))
    flops = trainers[0].compiled.cost_analysis()["flops"]  # the body of a loop counts once
    published = PUBLISHED_MS.get(model)
    beside = "".join(f"{published / (1e3 * seconds):8.2f}" for seconds in per_seed) if published else ""
    one, at_once, in_turn, on_each = (1e3 * seconds for seconds in per_seed)
    return (
        f"{model:16}{one:9.1f}{at_once:14.1f}{in_turn:9.1f}{on_each:14.1f}{flops / 1e9:8.2f}"
        f"{flops / per_seed[0] / rate:9.0%}{published or float('nan'):14.1f}{beside}"
    )


def _seconds_on_each_core(model: str, preset: str, budget_s: float) -> float:
    """Seconds of a training step of a seed, when every core trains one in a process of its own."""
    shares = shares_of_cores()
    code = f"from {__name__} import train_when_told; train_when_told({model!r}, {preset!r}, {budget_s})"
    start = functools.partial(subprocess.Popen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    processes = []
    for cores in shares:
        with on_cores(cores):
            processes.append(start([sys.executable, "-c", code]))
    for process in processes:
        process.stdout.readline()  # it is ready
    for process in processes:
        print(file=process.stdin, flush=True)
    return statistics.mean(float(process.communicate()[0]) for process in processes) / len(shares)


def train_when_told(model: str, preset: str, budget_s: float) -> None:
    """Compiles, says so on standard output, waits for a line on standard input, and prints the seconds of a step."""
    run = trainer(model, preset, 1, _STEPS).run
    jax.block_until_ready(run())
    print("ready", flush=True)
    sys.stdin.readline()
    print(timing.seconds(timing.interleaved([run], _TURNS, budget_s), 0) / _STEPS)


def _built(model: str, preset: str):
    """A model and its initial variables."""
    config = gp.get_config(f"model={model},preset={preset}")
    module = settings.build_named(MODELS, config.model, "config.model")
    points = _points(0, 2)
    return module, module.init(jax.random.key(0), points, points.x, key=jax.random.key(1))


def _points(seed: int | jax.Array, count: int) -> Points:
    x, y = jax.random.split(jax.random.fold_in(jax.random.key(7), seed))
    return Points(jax.random.uniform(x, (count, 1), minval=-2, maxval=2), jax.random.normal(y, (count, 1)))


def _memory(model, variables, length: int, as_state: bool = False):
    """A function of no arguments that conditions on `length` points: in chunks if the model has a state, else at once.

    It returns what queries need, or the state that can be updated.
    Here and below the variables are arguments of the program: the compiler would merge layers of equal constants.
    """
    chunk, in_chunks = min(length, _CHUNK), has_state(model, variables)

    def remember(variables, first):
        if in_chunks:
            state = condition_made(model, variables, lambda i: _points(first + i, chunk), length // chunk)
            return state if as_state else model.apply(variables, state, method="finish")
        return model.apply(variables, _points(first, length), method="remember")

    return functools.partial(jax.jit(remember), variables, 0)


def _conditioning_line(name: str, preset: str, length: int, budget_s: float) -> str:
    model, variables = _built(name, preset)
    remember, arguments = _memory(model, variables, length), (_points(1, _TARGETS).x, jax.random.key(0))
    query = jax.jit(lambda variables, memory, x, key: model.apply(variables, memory, x, key=key, method="query").mean)
    calls = remember, functools.partial(query, variables, remember(), *arguments)
    # Not in turns: a long one empties the caches.
    conditioning, querying = (timing.seconds(timing.interleaved([call], _TURNS, budget_s), 0) for call in calls)
    return (
        f"{name:16} N={length:<7} conditioning {length / conditioning:12.0f} points/s, "
        f"querying {_TARGETS / querying:10.0f} targets/s"
    )


def _update_line(name: str, preset: str, budget_s: float) -> str:
    model, variables = _built(name, preset)
    if not has_state(model, variables):
        return f"{name:16} has no state of constant size to update"
    update = jax.jit(functools.partial(model.apply, method="update"))
    states = [_memory(model, variables, seen, as_state=True)() for seen in _SEEN]
    calls = [functools.partial(update, variables, state, _points(1, 100)) for state in states]
    times = timing.interleaved(calls, 2 * _TURNS + 1, budget_s)
    return (
        f"{name:16} update by 100 points {1e3 * timing.seconds(times, 0):8.2f} ms with {_SEEN[0]:.0e} seen; "
        f"with {_SEEN[1]:.0e}, {timing.ratio(times, 1, 0):.2f} times the time"
    )


def _bandit_line(name: str, preset: str) -> str:
    config = wheel.get_config(f"model={name},preset={preset}")
    rounds, seeds = _PLAYERS[name], 2
    config.evaluation.update(rounds=rounds, last=1, seeds=seeds, batch_size=seeds, stages=1)
    experiment = training.build(config)
    variables = jax.jit(experiment.init)(jax.random.key(0))
    play = functools.partial(jax.jit(experiment.evaluate), variables, experiment.data["test"], jax.random.key(1))
    times = timing.interleaved([play], 3)
    wheels = seeds * len(config.evaluation.deltas)
    return f"{name:16} bandit: {wheels * rounds / timing.seconds(times, 0):10.0f} rounds/s, {wheels} wheels at once"
