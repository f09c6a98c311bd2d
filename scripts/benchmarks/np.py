"""Neural processes at the published GP setting: training, conditioning and querying, acting.

Training is measured in two settings, batch 16, published widths (CMANP and LBANP with 128 latents), the sampling of the
functions included:

    protocol   gp.py as it is configured: N and M drawn for each batch, computed in size classes
    fixed      N = M = 25 in every step

Of one seed on one core; and of one seed on each core, in processes of their own, as `sweep --workers` runs cells: the
time of a step over the number of cores. In the fixed setting also of one seed, and of each of five seeds, at once
(vmap) and in turn, on all cores. Beside them are times of the published PyTorch code (BorealisAI/constant-memory-anp),
quoted, not measured: on one core and on two, with the real sampler and the real numbers of points; in the fixed setting
without sampling. They are of another machine: `benchmark published` measures the released operations on this one.

Floating-point work is the compiler's count for one step; in the protocol its mean over the law of sizes. Its rate is
compared with that of matrix products measured in this run, of the shape of most products in these models,
(800 x 64) (64 x 256). Waste is the number of slots computed over the number of points there are.
"""

import functools
import itertools
import resource
import statistics
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from configs.neural_processes import gp, wheel
from experiments.harness import programs, settings, timing
from experiments.harness.experiment import Experiment
from experiments.harness.placement import shares_of_cores
from experiments.harness.programs import Program
from experiments.neural_processes.wheel import acting
from kvq_jax.models import MODELS, Points
from kvq_jax.models.neural_processes import condition_made, has_cache, has_state
from scripts.benchmarks import training, workers

_POINTS, _SEEDS, _STEPS, _TURNS, _BUDGET_S = 25, 5, 20, 5, 1.0
_PROTOCOL_STEPS = 40  # of a turn: each has other sizes
# Milliseconds of a training step of the released code: setting -> cores -> model. What is missing is left blank.
PUBLISHED_MS = {
    "protocol": {
        1: dict(
            **dict(cnp=12.8, np=33.0, bnp=62.0, canp=24.7, anp=42.5, tnp_d=30.9, tnp_a=40.4, tnp_nd=40.5),
            **dict(eqtnp=54.7, lbanp=275.0, cmanp=453.0),
        ),
        2: dict(cnp=8.7, canp=18.3, tnp_d=26.4, tnp_nd=36.2, eqtnp=38.5, lbanp=153.0, cmanp=293.0),
    },
    "fixed": {
        2: dict(
            **dict(cnp=6.1, canp=13.4, np=14.8, anp=25.0, bnp=26.1, banp=67.5, tnp_d=19.9, tnp_a=29.3, tnp_nd=25.9),
            **dict(eqtnp=29.1, lbanp=117.0, lbanp_nd=122.0, cmanp=233.0, cmanp_and=243.0),
        )
    },
}
_LONG = ("cmanp",)
_LONG_CONTEXT, _LONG_TARGETS, _LONG_CHUNK = 100_000, 1_000_000, 2048
_CONDITIONED = ("cnp", "intention_anp", "lbanp", "cmanp", "intention_cmanp")
_LENGTHS, _CHUNK, _TARGETS = (100, 1000, 10_000, 100_000), 1000, 100
_SEEN = (1_000, 1_000_000)
# Rounds, so that each takes about a second.
_PLAYERS = {"cnp": 200, "canp": 200, "intention_anp": 200, "tnp_d": 50, "cmanp": 20}


def main(models: Sequence[str] = gp.MODELS, preset: str = "paper", budget_s: float = _BUDGET_S) -> None:
    """Prints all parts for some models of a preset."""
    rate = matmul_rate(budget_s)
    print(
        f"neural processes, preset {preset}, batch 16, float32, {jax.devices()[0].device_kind}; "
        f"(800 x 64) (64 x 256): {rate / 1e9:.0f} GFLOP/s on all cores"
    )
    for model in (model for model in _LONG if model in models):
        print(_long_line(model, preset))  # first: its peak is that of the whole process so far
    print("protocol: milliseconds a step")
    print(
        f"{'':16}{'waste':>6}{'GFLOP':>7}{'one core':>10}{'of rate':>9}{'published':>11}{'times':>7}"
        f"{'each core':>11}{'published':>11}{'times':>7}"
    )
    for model in models:
        print(_protocol_line(model, preset, budget_s))
    print(f"N = M = {_POINTS}: milliseconds a step")
    print(
        f"{'':16}{'one seed':>9}{f'of {_SEEDS} at once':>14}{'in turn':>9}{'on each core':>14}{'GFLOP':>8}"
        f"{'of rate':>9}{'published ms':>14}{'times as fast':>32}"
    )
    for model in models:
        print(_fixed_line(model, preset, rate, budget_s))
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


def configured(model: str, preset: str, setting: str) -> ConfigDict:
    """The config of a model in a setting."""
    config = gp.get_config(f"model={model},preset={preset}")
    if setting == "fixed":
        config.task.update(min_context=_POINTS, max_context=_POINTS, min_targets=_POINTS, max_points=2 * _POINTS)
    return config


def trainer(
    model: str, preset: str, seeds: int, chunk_steps: int, placement: str = "single", setting: str = "fixed"
) -> training.Trainer:
    """Training in a setting."""
    config = configured(model, preset, setting)
    return training.trainer(training.build(config), config, seeds, chunk_steps, placement)


def _protocol_line(model: str, preset: str, budget_s: float) -> str:
    config, published = configured(model, preset, "protocol"), PUBLISHED_MS["protocol"]
    experiment = training.build(config)
    flops, parts = _expected_flops(experiment, config), []
    (alone, rate), (on_each, _) = _on_cores(model, preset, "protocol", budget_s)
    for cores, seconds in ((1, alone), (len(shares_of_cores()), on_each)):
        theirs = published.get(cores, {}).get(model)
        share = f"{flops / seconds / rate:9.0%}" if seconds is alone else ""
        ours = f"{1e3 * seconds:{10 if share else 11}.1f}"
        parts.append(ours + share + (f"{theirs:11.1f}{theirs / (1e3 * seconds):7.2f}" if theirs else " " * 18))
    return f"{model:16}{experiment.sizes.classes.waste:6.2f}{flops / 1e9:7.2f}" + "".join(parts)


def _expected_flops(experiment: Experiment, config: ConfigDict) -> float:
    """Floating-point work of a step, its mean over the law of sizes."""
    classes = experiment.sizes.classes
    works = [training.flops(experiment, config, slots) for slots in classes.classes]
    return float(sum(p * work for p, work in zip(classes.probabilities, works)))


def _fixed_line(model: str, preset: str, rate: float, budget_s: float) -> str:
    cases = ((1, "single"), (_SEEDS, "single"), (_SEEDS, "in_turn"))
    trainers = [trainer(model, preset, seeds, _STEPS, placement) for seeds, placement in cases]
    times = timing.interleaved([each.run for each in trainers], _TURNS, 3 * budget_s)
    per_seed = [timing.seconds(times, case) / _STEPS / seeds for case, (seeds, _) in enumerate(cases)]
    per_seed.append(_on_cores(model, preset, "fixed", budget_s)[1][0])
    flops = trainers[0].compiled.cost_analysis()["flops"]  # the body of a loop counts once
    published = PUBLISHED_MS["fixed"][2].get(model)
    beside = "".join(f"{published / (1e3 * seconds):8.2f}" for seconds in per_seed) if published else ""
    one, at_once, in_turn, on_each = (1e3 * seconds for seconds in per_seed)
    return (
        f"{model:16}{one:9.1f}{at_once:14.1f}{in_turn:9.1f}{on_each:14.1f}{flops / 1e9:8.2f}"
        f"{flops / per_seed[0] / rate:9.0%}{published or float('nan'):14.1f}{beside}"
    )


def _on_cores(model: str, preset: str, setting: str, budget_s: float) -> list[tuple[float, float]]:
    """Seconds of a step of a seed on one core alone; and on each core, over their number.

    Each core trains a seed in a process of its own. Beside the seconds is the mean rate of matrix products in it.
    """
    each = [workers.start(train, model, preset, setting, budget_s, cores=cores) for cores in shares_of_cores()]
    workers.wait(each)
    measured = []
    for asked in (each[:1], each):
        seconds, rate = map(statistics.mean, zip(*workers.ask(asked)))
        measured.append((seconds / len(asked), rate))
    workers.end(each)
    return measured


def train(model: str, preset: str, setting: str, budget_s: float) -> None:
    """In a worker: measures the seconds of a training step, and the rate of matrix products."""
    steps = _STEPS if setting == "fixed" else _PROTOCOL_STEPS
    run = trainer(model, preset, 1, steps, setting=setting).run
    jax.block_until_ready(run())

    def measure():
        return timing.seconds(timing.interleaved([run], _TURNS, budget_s), 0) / steps, matmul_rate(budget_s)

    workers.answer(measure)


@functools.cache
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
    chunk, in_chunks = min(length, _CHUNK), has_state(model)

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
    if not has_state(model):
        return f"{name:16} has no state of constant size to update"
    update = jax.jit(functools.partial(model.apply, method="update"))
    states = [_memory(model, variables, seen, as_state=True)() for seen in _SEEN]
    calls = [functools.partial(update, variables, state, _points(1, 100)) for state in states]
    times = timing.interleaved(calls, 2 * _TURNS + 1, budget_s)
    return (
        f"{name:16} update by 100 points {1e3 * timing.seconds(times, 0):8.2f} ms with {_SEEN[0]:.0e} seen; "
        f"with {_SEEN[1]:.0e}, {timing.ratio(times, 1, 0):.2f} times the time"
    )


def _long_line(name: str, preset: str) -> str:
    """Conditioning on a long context and querying many targets, both in parts that are made inside the program."""
    model, variables = _built(name, preset)
    remember = _memory(model, variables, _LONG_CONTEXT)
    parts = -(-_LONG_TARGETS // _LONG_CHUNK)

    @jax.jit
    def query(variables, memory):
        def of_part(number):
            x = _points(number, _LONG_CHUNK).x
            found = model.apply(variables, memory, x, method="query")
            return jnp.stack([found.mean.sum(), found.variance.sum()])

        return jax.lax.map(of_part, jnp.arange(parts))

    memory = remember()
    needed = programs.memory(Program(query, (variables, memory)))
    calls = remember, functools.partial(query, variables, memory)
    conditioning, querying = (timing.seconds(timing.interleaved([call], 3), 0) for call in calls)
    return (
        f"{name:16} {_LONG_CONTEXT} context points in {conditioning:.2f} s, {parts * _LONG_CHUNK} targets in "
        f"{querying:.2f} s, {needed / 2**20:.0f} MiB beside arguments and results; "
        f"peak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"
    )


def _bandit_line(name: str, preset: str) -> str:
    config = wheel.get_config(f"model={name},preset={preset}")
    rounds, seeds = _PLAYERS[name], 2
    config.evaluation.update(rounds=rounds, last=1, seeds=seeds, batch_size=seeds, stages=1)
    experiment = training.build(config)
    variables, test, key = jax.jit(experiment.init)(jax.random.key(0)), experiment.data["test"], jax.random.key(1)
    model, together = experiment.model, min(seeds, acting.at_once(experiment.model))
    players = [functools.partial(jax.jit(experiment.evaluate), variables, test, key)]

    def from_buffers(variables, wheel):
        agent = acting.in_buffer(model, variables, 1)
        play = lambda own: acting.play(agent, own, key, config.evaluation.exploration)
        return jax.lax.map(play, wheel, batch_size=together)

    if has_cache(model) and not has_state(model):
        players.append(functools.partial(jax.jit(from_buffers), variables, test.wheel))
    times = timing.interleaved(players, 3)
    own, *of_buffer = (timing.seconds(times, place) for place in range(len(players)))
    ratio = "".join(f", {seconds / own:.1f} times those from a buffer" for seconds in of_buffer)
    wheels = len(config.evaluation.deltas)
    return (
        f"{name:16} bandit: {seeds * wheels * rounds / own:10.0f} rounds/s, {together * wheels} wheels at once{ratio}"
    )
