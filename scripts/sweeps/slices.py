"""A picture of runs beside each other: a metric against each axis and override in which they differ."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from experiments.harness.drawing import BLUE, FAINT, hide_after, new_figure, required, save
from scripts.sweeps.varied import Entry, keys_of, metric_of, text_of

_COLUMNS = 3  # panels in a line
_WIDE = 20.0  # the ratio of the ends from which numbers are drawn on a logarithmic axis
_FEW = 5  # values of a key that are all named


def draw(entries: Sequence[Entry], path: Path, metric: str | None = None) -> Path:
    """Draws one panel for each key that differs: a dot for each run, with its standard error.

    A line joins runs that agree in every other key. Runs without a finite number are left out, and the heading says how
    many. Raises UserError where no run has one, or all agree in every key.
    """
    metric = metric_of(entries, metric)
    known = required([e for e in entries if e.number(metric).known], f"a picture needs results with {metric}")
    keys = required(keys_of(known), "a picture needs results that differ in an axis or an override")
    figure, axes = new_figure(math.ceil(len(keys) / _COLUMNS), min(len(keys), _COLUMNS), sharey=True)
    panels = [axis for line in axes for axis in line]
    for axis, key in zip(panels, keys):
        places = _places(axis, [entry.value(key) for entry in known])
        _join(axis, key, keys, known, places, metric)
        for entry, place in zip(known, places):
            number = entry.number(metric)
            axis.errorbar(place, number.mean, number.error, fmt="o", color=BLUE, markersize=4, linewidth=1)
        axis.set_xlabel(key)
    means = [entry.number(metric).mean for entry in known]
    if min(means) > 0 and max(means) / min(means) > _WIDE:
        panels[0].set_yscale("log")
    for line in axes:
        line[0].set_ylabel(metric)
    hide_after(len(keys), axes)
    figure.suptitle(f"{len(known)} of {len(entries)} runs have a number", fontsize=9)
    rows = [[*(text_of(e.value(key)) for key in keys), e.number(metric).mean, e.number(metric).error] for e in known]
    return save(figure, path, [*keys, metric, f"{metric} sem"], rows)


def _places(axis: Axes, values: Sequence[Any]) -> list[float]:
    """Where values stand on an axis: numbers where they are, anything else in order of appearance."""
    if all(type(value) in (int, float) for value in values):
        if min(values) > 0 and max(values) / min(values) > _WIDE / 2:
            axis.set_xscale("log")
        if len(set(values)) <= _FEW:
            axis.set_xticks(sorted(set(values)), [f"{value:g}" for value in sorted(set(values))])
            axis.minorticks_off()
        return list(values)
    names = list(dict.fromkeys(map(text_of, values)))
    axis.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 8 else 0)
    axis.margins(x=0.15)
    return [float(names.index(text_of(value))) for value in values]


def _join(axis: Axes, key: str, keys: Sequence[str], known: Sequence[Entry], places: list[float], metric: str) -> None:
    groups: dict[tuple, list[tuple[float, float]]] = {}
    for entry, place in zip(known, places):
        others = tuple(repr(entry.value(other)) for other in keys if other != key)
        groups.setdefault(others, []).append((place, entry.number(metric).mean))
    for points in groups.values():
        axis.plot(*zip(*sorted(points)), color=FAINT, linewidth=1.2, zorder=0)
