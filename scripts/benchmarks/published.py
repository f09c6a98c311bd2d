"""Training of neural processes at the published GP setting beside the released operations in PyTorch, in one run.

gp.py as it is configured, batch 16, on both sides: the numbers of points of each batch are drawn, and its functions
sampled. Both train one seed on one core; then ours one seed on each core (the time of a step over the number of cores),
theirs one seed with a thread for each core. They take turns, of which the median is printed, with the least and the
most. 'times' is theirs over ours. Needs PyTorch: pip install '.[released]'.
"""

import importlib.util
import statistics
import time
from collections.abc import Sequence

from configs.neural_processes import gp
from experiments.harness.errors import UserError
from experiments.harness.placement import shares_of_cores
from scripts.benchmarks import np as neural_processes
from scripts.benchmarks import workers

_TURNS, _BUDGET_S, _LEAST_STEPS = 5, 3.0, 5


def main(models: Sequence[str] | None = None, preset: str = "paper", budget_s: float = _BUDGET_S) -> None:
    """Prints a line for each model. The preset is of ours: the released models have their published sizes."""
    if importlib.util.find_spec("torch") is None:
        raise UserError("the benchmark published needs PyTorch: pip install '.[released]'")
    import torch

    from scripts.benchmarks import released

    for model in models or ():
        if model not in released.MODELS:
            raise UserError(f"{model} has no released code")
    rate = neural_processes.matmul_rate(budget_s)
    print(
        f"beside the released operations, torch {torch.__version__}: preset {preset}, batch 16, float32, milliseconds "
        f"a step; (800 x 64) (64 x 256): {rate / 1e9:.0f} GFLOP/s on all cores"
    )
    print(f"{'':12}{'one core':>9}{'released':>27}{'times':>7}{'each core':>12}{'released':>27}{'times':>7}")
    for model in models or [model for model in gp.MODELS if model in released.MODELS]:
        print(_line(model, preset, budget_s), flush=True)


def train(model: str, threads: int, budget_s: float) -> None:
    """In a worker: measures the seconds of a step of the released training."""
    from scripts.benchmarks import released

    step = released.trainer(model, threads)
    step()

    def measure():
        start, steps = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < budget_s or steps < _LEAST_STEPS:
            step()
            steps += 1
        return (elapsed / steps,)

    workers.answer(measure)


def _line(model: str, preset: str, budget_s: float) -> str:
    shares = shares_of_cores()
    ours = [workers.start(neural_processes.train, model, preset, "protocol", budget_s, cores=cores) for cores in shares]
    on_one = workers.start(train, model, 1, budget_s, cores=shares[0])
    on_all = workers.start(train, model, len(shares), budget_s, cores=set().union(*shares))
    workers.wait([*ours, on_one, on_all])
    times = [[_milliseconds(asked) for asked in (ours[:1], [on_one], ours, [on_all])] for _ in range(_TURNS)]
    workers.end([*ours, on_one, on_all])
    alone, released_alone, each, released_all = zip(*times)
    return f"{model:12}{_beside(alone, released_alone, 9)}{_beside(each, released_all, 12)}"


def _milliseconds(asked: Sequence[workers.Worker]) -> float:
    return 1e3 * statistics.mean(seconds for seconds, *_ in workers.ask(asked)) / len(asked)


def _beside(ours: Sequence[float], theirs: Sequence[float], width: int) -> str:
    ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
    spread = f"{statistics.median(theirs):.1f} ({min(theirs):.1f} to {max(theirs):.1f})"
    return f"{statistics.median(ours):{width}.1f}{spread:>27}{ratio:7.2f}"
