"""The table of any run: what was measured of its model, beside what is known of its task."""

from collections.abc import Sequence

import numpy as np

from experiments.harness.results import Result, drawn, facts, seeds_of
from experiments.harness.tables import Cell, Table, measured, median
from experiments.regression.labels import METRICS, PHASES, by_count, label, measured_of, model_of

_SHOWN_COUNTS = 5


def run_table(result: Result) -> Table:
    """One run. A row for each metric of each phase; columns are numbers of observations, or the mean and the median."""
    names = measured_of(result)
    phases = [phase for phase in PHASES if any(name.startswith(f"{phase}/") for name in result.metrics)]
    counts = shown_counts(by_count(result, "trained"))
    rows = [
        (f"{METRICS[name]}, {phase}" if len(phases) > 1 else METRICS[name], _cells(result, phase, name, counts))
        for name in names
        for phase in phases
    ]
    told = facts([result], next(name for name in result.metrics if name.startswith("trained/")))
    caption = (
        f"Preset {told['preset']}, {result.steps} steps, {seeds_of(told)}; mean ± standard "
        f"error over {drawn(told)} tasks."
    )
    observations = " by number of observations" if counts else ""
    columns = ["measured", *map(str, counts)] if counts else ["measured", "mean", "median"]
    return Table(f"{result.name}: {label(model_of(result))}{observations}", columns, rows, caption, facts=told)


def shown_counts(counts: Sequence[int]) -> list[int]:
    """Some of the numbers of observations, the first and the last among them."""
    counts = list(counts)
    places = np.linspace(0, len(counts) - 1, _SHOWN_COUNTS).round().astype(int) if counts else []
    return [counts[place] for place in np.unique(places).astype(int)]


def _cells(result: Result, phase: str, name: str, counts: Sequence[int]) -> list[Cell]:
    if counts:
        of_count = by_count(result, phase, name)
        return [measured(of_count[count]) if count in of_count else Cell() for count in counts]
    summary = result.metrics.get(f"{phase}/{name}")
    return [measured(summary), median(summary)]
