"""Training of each experiment: steps per second, and the share of time spent outside matrix products and convolutions.

The first model of each config file, one seed; where images are needed, scikit-learn's digits, enlarged to the size of the real
ones. Time is that of the operations of one chunk of steps, as the profiler reports it; a fusion that contains a product or a
convolution counts as one.
"""
import gzip
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import jax

from configs.intention import anomaly, few_shot_classification, kabsch, pixels, policy_distillation, scaling, sine
from configs.neural_processes import analyses, gp, wheel
from experiments.harness import timing
from scripts.benchmarks import training

_TURNS, _BUDGET_S = 5, 2.0
_STEPS = {"tiny": 10, "quick": 20, "paper": 2}  # of a chunk
# Config files, and the axes that a file is measured with.
_FILES = ((sine, ""), (pixels, ""), (scaling, ""), (policy_distillation, ""), (kabsch, ""), (few_shot_classification, ",source=digits"),
          (anomaly, ""), (gp, ""), (analyses, ""), (wheel, ""))


def main(files: Sequence[tuple[ModuleType, str]] = _FILES, presets: Sequence[str] = ("quick", "paper"), budget_s: float = _BUDGET_S) -> None:
    """Prints a line for each file and preset."""
    print(f"training, one seed, {jax.devices()[0].device_kind}")
    print(f"{'config':44}{'model':16}{'preset':8}{'steps/s':>10}{'outside products':>18}")
    for file, axes in files:
        for preset in presets:
            config = file.get_config(f"preset={preset}{axes}")
            trainer = training.trainer(training.build(config), config, 1, _STEPS[preset])
            seconds = timing.seconds(timing.interleaved([trainer.run], _TURNS, budget_s), 0) / _STEPS[preset]
            share = outside_products(trainer)
            print(f"{config.name:44}{config.model.name:16}{preset:8}{1 / seconds:10.3g}{share:18.0%}", flush=True)


def outside_products(trainer: training.Trainer) -> float:
    """The share of a chunk's time in operations without a matrix product or a convolution."""
    products = _products(trainer.compiled.as_text())
    durations = Counter()
    for event in _events(trainer.run):
        name = event.get("args", {}).get("hlo_op")
        if event.get("ph") == "X" and name:
            durations[name in products] += event["dur"]
    return durations[False] / max(durations.total(), 1)


def _products(hlo: str) -> set[str]:
    """The names of the operations of a compiled program that are, call, or contain a matrix product or a convolution."""
    product = re.compile(r" (dot|convolution)\(|custom_call_target=\"[^\"]*(gemm|matmul|conv|dot)", re.IGNORECASE)
    named = [(line, re.match(r"\s*(?:ROOT )?%?([\w.\-]+) = ", line)) for line in hlo.splitlines()]
    bodies, body = set(), None  # the computations that have a product
    for line, name in named:
        if name is None:
            header = re.match(r"(?:ENTRY )?%?([\w.\-]+) ", line)
            body = header.group(1) if header else body
        elif product.search(line):
            bodies.add(body)
    calls = re.compile(r"kind=\w+.* calls=%?([\w.\-]+)")
    called = {name.group(1): calls.search(line) for line, name in named if name}
    direct = {name.group(1) for line, name in named if name and product.search(line)}
    return direct | {name for name, call in called.items() if call and call.group(1) in bodies}


def _events(run) -> list[dict]:
    """What the profiler saw of one call."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (path,) = Path(folder).rglob("*.trace.json.gz")
        return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
