"""Training of experiments: steps per second, and the share of time outside matrix products and convolutions.

Those of the Intention paper, and CMANP's on functions of a Gaussian process and the wheel bandit. The first model of
each config file, one seed, on noise in the shapes of the real data sets. The share is of the time of the operations of
one chunk of steps, as the profiler reports it; a fusion that contains a product or a convolution counts as one. A
program that needs more memory than is free is not run. If the first chunk shows that the turns would take longer than
the budget, the program is not timed again, and its line says so.
"""

import gzip
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from unittest import mock

import jax
import numpy as np
from ml_collections import ConfigDict

from configs.intention import anomaly, few_shot_classification, kabsch, pixels, policy_distillation, scaling, sine
from configs.neural_processes import analyses, gp, wheel
from experiments.data import image_classes, sources
from experiments.data.dataset import DataSet
from experiments.harness import timing
from experiments.harness.experiment import Experiment
from experiments.harness.placement import free_memory
from experiments.intention.anomaly import data as anomaly_data
from experiments.tasks.anomaly import Images
from scripts.benchmarks import training

_TURNS, _BUDGET_S = 5, 10.0
_STEPS = {"tiny": 10, "quick": 20, "paper": 2}  # of a chunk
# Config files, and the axes that choose the paper's data.
_FILES = (
    (sine, ""),
    (pixels, ",source=archive"),
    (scaling, ",size=32"),
    (policy_distillation, ""),
    (kabsch, ""),
    (few_shot_classification, ",source=mini_imagenet"),
    (anomaly, ",source=archive"),
    (gp, ""),
    (analyses, ""),
    (wheel, ""),
)


def main(
    files: Sequence[tuple[ModuleType, str]] = _FILES,
    presets: Sequence[str] = ("quick", "paper"),
    budget_s: float = _BUDGET_S,
) -> None:
    """Prints a line for each file and preset."""
    print(f"training, one seed, {jax.devices()[0].device_kind}")
    print(f"{'config':44}{'model':16}{'preset':8}{'steps/s':>10}{'outside products':>18}")
    for file, axes in files:
        for preset in presets:
            config = file.get_config(f"preset={preset}{axes}")
            line = measured(on_noise(config), config, _STEPS[preset], budget_s)
            print(f"{config.name:44}{config.model.name:16}{preset:8}{line}", flush=True)


def measured(experiment: Experiment, config: ConfigDict, chunk_steps: int, budget_s: float) -> str:
    """Steps per second and the share outside products; or how much memory is missing."""
    trainer = training.trainer(experiment, config, 1, chunk_steps)
    needed = trainer.compiled.memory_analysis().temp_size_in_bytes
    if needed > free_memory():
        return f"does not fit in memory: {needed / 1e9:.1f} GB"
    seconds, note = timing.elapsed(trainer.run), "  (of one chunk)"
    if (_TURNS + 2) * seconds <= budget_s:  # two calls find out how many fill a turn
        seconds, note = timing.seconds(timing.interleaved([trainer.run], _TURNS, budget_s), 0), ""
    return f"{chunk_steps / seconds:10.3g}{outside_products(trainer):18.0%}{note}"


def on_noise(config: ConfigDict) -> Experiment:
    """The experiment of a config on noise in the shapes of its data set: MNIST, mini-ImageNet or CIFAR-100."""
    with (
        mock.patch.object(sources, "load", _mnist),
        mock.patch.object(image_classes, "load", _mini_imagenet),
        mock.patch.object(anomaly_data, "load", _cifar_features),
    ):
        return training.build(config)


def _mnist(name: str, source: str, data_dir: str | None) -> DataSet:
    train, test = ({"image": _pixels(number, 28, 28), "label": np.arange(number) % 10} for number in (60_000, 10_000))
    return DataSet("noise", train, test)


def _mini_imagenet(source: str, data_dir: str | None, size: int, least: int = 1) -> image_classes.ImageClasses:
    """The 600 images of each of the 64 training classes; fewer of the classes that this benchmark does not touch."""
    splits = []
    for classes, number in ((64, 600), (16, least), (20, least)):
        member = np.arange(classes * number, dtype=np.int32).reshape(classes, number)
        splits.append(image_classes.Split(_pixels(member.size, size, size, 3), member, tuple(map(str, range(classes)))))
    return image_classes.ImageClasses("noise", *splits)


def _cifar_features(config: ConfigDict, data_dir: str | None) -> tuple[dict[str, Images], dict]:
    """The splits of 100 classes, of the config's principal components, or of a ResNet-34's 512 features."""
    width = config.features.dimension if config.features.name == "raw_pixels_pca" else 512
    splits = {}
    for split, number in (("train", 450), ("validation", 50), ("test", 100)):
        label = np.repeat(np.arange(100), number)
        feature = np.random.default_rng(0).normal(size=(len(label), width))
        splits[split] = anomaly_data.images(feature, label, training=split == "train")
    return splits, {}


def _pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


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
    """Names of the operations of a compiled program that are, call or contain a matrix product or a convolution."""
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
