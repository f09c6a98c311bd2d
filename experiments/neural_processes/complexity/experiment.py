"""Measures memory and time of what a neural process does (CMANP paper, Tables 1, 2, 3, 8, Figures 3, 4, 8).

A result has a metric '<series>/<model>@<size>' for each measured program, in bytes or seconds, beside it
'device_peak/<series>/<model>@<size>' where the device counts its memory. The fact `absent` lists the '<series>/<model>'
whose model has no such phase.
"""

import dataclasses
import functools

import numpy as np
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import Summary, single
from experiments.harness.placement import device_peak
from experiments.harness.programs import Program, memory, seconds
from experiments.neural_processes.complexity import programs
from kvq_jax.domains import Count, Natural, NotNegative
from kvq_jax.models import family

SECTIONS = ("models", "series", "measurement")
# Quantity of a series -> (program, Measurement) -> bytes or seconds.
_QUANTITIES = {
    "memory": lambda program, how: memory(program),
    "time": lambda program, how: seconds(program, how.turns, how.budget_s),
}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The config's `measurement` section."""

    chunk: Count  # points that a state of constant size takes at once
    turns: Count  # of a timing, which is their median
    budget_s: NotNegative  # seconds to spend on a timing
    dim_x: Count  # inputs of the functions; the outputs are the models' own


@dataclasses.dataclass(frozen=True)
class Series:
    """A section of the config's `series`: a quantity of one phase of some models, at several sizes."""

    quantity: str  # memory or time
    phase: str  # a name of programs.PHASES
    vary: str  # what a size is: 'context' points, other 'points' (targets, new points), or a field of the models
    sizes: tuple[Count, ...]
    fixed: Count  # context points and other points where they do not vary
    models: tuple[str, ...]  # names in the config's `models`
    batch: Natural  # functions at once; 0: one, without a leading dimension

    def __post_init__(self):
        settings.choose(_QUANTITIES, self.quantity, "quantity")
        settings.choose(programs.PHASES, self.phase, "phase")

    def program(self, model: programs.Model, size: int) -> Program | None:
        """The program to measure at a size, or None: the model has no such phase."""
        points = {"context": (size, self.fixed), "points": (self.fixed, size)}
        model = model._replace(batch=(self.batch,) * (self.batch > 0))
        return programs.PHASES[self.phase](model, *points.get(self.vary, (self.fixed, self.fixed)))


def measure(config: ConfigDict) -> tuple[dict[str, Summary], dict[str, np.ndarray], dict[str, list[str]]]:
    """Metrics, no arrays, and the phases that are absent. Raises ConfigError before anything is measured."""
    how = settings.build(Measurement, config.measurement, "config.measurement")
    wanted = {name: settings.build(Series, section, f"config.series.{name}") for name, section in config.series.items()}

    @functools.cache
    def model_of(name, **changes):
        section = settings.choose(config.models, name, "model of a series").to_dict() | changes
        module = settings.build_named(family("neural_process"), section, f"config.models.{name}")
        return programs.shaped(module, how.chunk, how.dim_x)

    jobs = []
    for series_name, series in wanted.items():
        for name in series.models:
            for size in series.sizes:
                changes = {} if series.vary in ("context", "points") else {series.vary: size}
                jobs.append((f"{series_name}/{name}", series, model_of(name, **changes), size))
    metrics, absent = {}, []
    for line, series, model, size in jobs:
        program = series.program(model, size)
        if program is None:
            absent.append(line)
            continue
        metrics[f"{line}@{size}"] = single(_QUANTITIES[series.quantity](program, how))
        peak = device_peak() if series.quantity == "time" else None
        metrics |= {} if peak is None else {f"device_peak/{line}@{size}": single(peak)}
    return metrics, {}, {"absent": sorted(set(absent))}
