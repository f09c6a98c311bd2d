"""Figures 3 and 8 of the CMANP paper from results of neural_processes/complexity."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.neural_processes.complexity import tables
from kvq_jax.models import MODELS

CONFIGS = tables.CONFIGS
_LABELS = {"memory": "temporary memory, MiB", "time": "milliseconds"}
_COLUMNS = ["panel", "model", "what", "points", "MiB or ms", "device peak, MiB"]
_PALETTE = (drawing.AMBER, drawing.VIOLET, drawing.BLUE, drawing.RED, drawing.GREEN, drawing.GREY, drawing.INK)
_MARKERS = "os^Dv"  # of lines that lie on each other, the later the smaller


class Panel(NamedTuple):
    """Lines over sizes. A line is the largest of one or more series of a model; lines after the first are broken."""

    lines: tuple[tuple[str, ...], ...]
    title: str  # may hold {fixed}
    xlabel: str


_FIGURE3 = (
    Panel((("joint",),), "joint prediction, {fixed} context points", "targets"),
    Panel((("conditioning", "querying"),), "conditioning and {fixed} targets", "context points"),
    Panel((("time",),), "querying {fixed} targets", "context points"),
)
_FIGURE8 = (
    Panel((("update",), ("anew",)), "update by {fixed} points", "context points before"),
    Panel((("query",),), "query of {fixed} targets", "context points"),
)
# Number of a figure -> what was measured for it, width of a panel in inches, panels.
_FIGURES = {3: ("context", 4.0, _FIGURE3), 8: ("update", 4.2, _FIGURE8)}


def of_paper(results: Sequence[Result], folder: Path, number: int) -> Path:
    """Figure 3: memory by targets (joint models) and by context, with time; Figure 8: time of updates and queries."""
    what, width, panels = _FIGURES[number]
    needs = f"Figure {number} needs a result of {CONFIGS[0]} with what={what}"
    run = drawing.required(tables.chosen_run(results, what), needs)
    return _drawn(run, panels, folder / f"figure{number}.png", width)


def run_figure(run: Result, folder: Path) -> Path:
    """One run: a panel for each series."""
    panels = [Panel(((name,),), name, series["vary"]) for name, series in run.config["series"].items()]
    return _drawn(run, panels, folder / "figure.png", width=3.2)


FIGURES = {f"cmanp/figure{number}": functools.partial(of_paper, number=number) for number in _FIGURES}


def _drawn(run: Result, panels: Sequence[Panel], path: Path, width: float) -> Path:
    figure, (axes,) = drawing.new_figure(1, len(panels), width=width, height=3.2)
    colours, rows = _colours(run), []
    for axis, panel in zip(axes, panels):
        for index, names in enumerate(panel.lines):
            section = run.config["series"][names[-1]]
            title = panel.title.format(fixed=section["fixed"])
            for model in (model for model in tables.models_of(run) if model in section["models"]):
                how = f", {names[0]}" if index else ""
                found = {size: _largest(run, names, model, size) for size in section["sizes"]}
                known = {size: value for size, value in found.items() if value is not None}
                place = tables.models_of(run).index(model)
                look = dict(color=colours[model], label=MODELS[model].label + how, linestyle="--" if index else "-")
                look |= dict(
                    marker=_MARKERS[place % len(_MARKERS)], markersize=max(8 - len(axis.lines), 4)
                )  # all are seen
                axis.plot(list(known), list(known.values()), **look)
                for size, value in known.items():
                    peak = run.metrics.get(f"device_peak/{names[-1]}/{model}@{size}")  # not every device has one
                    mebibytes = peak["mean"] * tables.SCALES["memory"] if peak else ""
                    rows.append((title, model + how, section["quantity"], size, value, mebibytes))
            axis.set(xscale="log", yscale="log", xlabel=panel.xlabel, ylabel=_LABELS[section["quantity"]], title=title)
        drawing.plain_ticks(axis.xaxis, section["sizes"])
        drawing.plain_ticks(axis.yaxis)
        axis.legend(fontsize=8)
    return drawing.save(figure, path, _COLUMNS, rows)


def _largest(run: Result, names: Sequence[str], model: str, size: int) -> float | None:
    """The largest number of some series, without those that the model does not have; None if none is known."""
    cells = [tables.number(run, name, size, model) for name in names]
    return max((cell.mean for cell in cells if not isinstance(cell, str) and cell.known), default=None)


def _colours(run: Result) -> dict[str, str]:
    """Model -> colour. Models whose labels differ after a hyphen share one: TNP-D and TNP-ND."""
    stems = {model: MODELS[model].label.split("-")[0] for model in tables.models_of(run)}
    places = {stem: place for place, stem in enumerate(dict.fromkeys(stems.values()))}
    return {model: _PALETTE[places[stem] % len(_PALETTE)] for model, stem in stems.items()}
