"""Figures 4, 6, 9 and 10 of the CMANP paper from results of neural_processes/analyses and /complexity."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import drawing
from experiments.harness.results import Result, comparable
from experiments.neural_processes.analyses import curves, tables
from experiments.neural_processes.complexity import tables as complexity
from experiments.neural_processes.gp.tables import KERNELS, title
from kvq_jax.models import MODELS

CONFIGS = tables.CONFIGS
_BAND = 2  # standard deviations on each side
_COLOURS = {"rbf": drawing.RED, "matern": drawing.BLUE}
_PLACE = {9: 0, 10: 1}  # number of a figure -> index in curves.PLACES
_COLUMNS = ["panel", "kernel", "size", "log_likelihood", "sem_of_gap", "oracle", "milliseconds"]

Rows = list[tuple]


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run: the functions of Figure 9 above, those of Figure 10 below."""
    (result,) = results
    figure, axes = drawing.new_figure(len(curves.PLACES), len(curves.FUNCTIONS), height=2.3, sharex=True, sharey="col")
    for place, label in enumerate(curves.PLACES):
        _draw_curves(axes[place], result.examples, place, label)
    _explain(figure, axes, f"{title(result)} (preset {result.preset})")
    return drawing.save(figure, folder / "figure.png")


def figure4(results: Sequence[Result], folder: Path) -> Path:
    """CMANP-AND: time (left) and likelihood (middle) by block size; CMANP: likelihood by |L_I| = |L_B| (right).

    The broken lines in the middle are a CMANP trained for as many steps. The time is that of
    neural_processes/complexity (what=blocks, of the same preset): of the likelihood of one function, all slots of its
    context and targets.
    """
    own = _own(results, "Figure 4")
    figure, ((left, middle, right),) = drawing.new_figure(1, 3, width=3.4, height=3.0)
    rows = _draw_times(left, [result for result in results if result.preset == own[0].preset])
    models = tables.study_of_blocks(own)
    blocks, without = models.get("cmanp_and"), models.get("cmanp")
    if blocks:
        sizes = blocks.config["evaluation"]["block_sizes"]
        rows += _draw_likelihoods(middle, "block size", dict.fromkeys(sizes, blocks), "joint", suffix="@{}")
        rows += _draw_levels(middle, sizes, without) if without else []
    rows += _draw_likelihoods(right, "both", tables.curve(own, "latents", "block_latents"), "marginal")
    left.set(xlabel="block size", ylabel="milliseconds a function", title="CMANP-AND, time")
    middle.set(xlabel="block size", title="CMANP-AND")
    right.set(xlabel="latents, $|L_I| = |L_B|$", title="CMANP")
    return _saved(figure, (left, middle, right), own, rows, folder / "figure4.png")


def figure6(results: Sequence[Result], folder: Path) -> Path:
    """CMANP's likelihood against |L_B| (left), |L_I| (middle) and the width (right); other sizes as in most cells."""
    own = _own(results, "Figure 6")
    figure, (axes,) = drawing.new_figure(1, 3, width=3.4, height=3.0, sharey=True)
    panels = {"block_latents": "block latents, $|L_B|$", "latents": "latents, $|L_I|$", "width": "width"}
    rows = []
    for axis, (varied, label) in zip(axes, panels.items()):
        rows += _draw_likelihoods(axis, varied, tables.curve(own, varied), "marginal")
        axis.set_xlabel(label)
    return _saved(figure, axes, own, rows, folder / "figure6.png")


def all_curves(results: Sequence[Result], folder: Path, number: int) -> Path:
    """Every model on the three functions, with a context from all of the range of training (9) or a part of it (10)."""
    name, place = f"Figure {number}", _PLACE[number]
    needs = f"{name} needs a result of {CONFIGS[0]} with study=blocks"
    cells = drawing.required(tables.study_of_blocks(_own(results, name)), needs)
    figure, axes = drawing.new_figure(len(cells), len(curves.FUNCTIONS), height=2.3, sharex=True, sharey="col")
    rows = []
    for line, (model, result) in zip(axes, cells.items()):
        rows += _draw_curves(line, result.examples, place, MODELS[model].label)
    preset = next(iter(cells.values())).preset
    _explain(figure, axes, f"Context in {curves.PLACES[place]} of training (preset {preset})")
    columns = ["model", "function", "x", "truth", "mean", "std"]
    return drawing.save(figure, folder / f"figure{number}.png", columns, rows)


FIGURES = {"cmanp/figure4": figure4, "cmanp/figure6": figure6}
FIGURES |= {f"cmanp/figure{number}": functools.partial(all_curves, number=number) for number in _PLACE}


def _own(results: Sequence[Result], figure: str) -> list[Result]:
    own = comparable(results, CONFIGS[0], lambda result: tuple(sorted(result.axes.items())))
    return list(drawing.required(own, f"{figure} needs results of {CONFIGS[0]}").values())


def _draw_times(axis: Axes, results: Sequence[Result]) -> Rows:
    """CMANP-AND's time against its block size, where it was measured."""
    run = complexity.chosen_run(results, "blocks")
    sizes = run.config["series"]["blocks"]["sizes"] if run else []
    cells = {size: complexity.number(run, "blocks", size, "cmanp_and") for size in sizes}
    times = {size: cell.mean for size, cell in cells.items() if not isinstance(cell, str) and cell.known}
    if times:
        axis.plot(list(times), list(times.values()), "o-", color=drawing.INK, markersize=4)
    return [("time", "", size, "", "", "", time) for size, time in times.items()]


def _draw_likelihoods(axis: Axes, panel: str, of_size: Mapping[int, Result], kind: str, suffix: str = "") -> Rows:
    """A line for each kernel; error bars: of the gap to the oracle. `suffix` of the metrics may hold the size."""
    rows = []
    for kernel, colour in _COLOURS.items():
        drawn = []
        for size, result in of_size.items():
            names = (f"target{suffix}", f"gap_{kind}{suffix}", f"oracle_{kind}")
            target, gap, oracle = (result.metrics[f"trained/{kernel}/{name.format(size)}"] for name in names)
            drawn.append((target["mean"], gap["sem"], oracle["mean"]))
        # None, which is not finite, becomes NaN
        means, errors, oracles = np.array(drawn, float).reshape(-1, 3).T.tolist()
        axis.errorbar(list(of_size), means, yerr=errors, fmt="o-", color=colour, markersize=4, label=KERNELS[kernel])
        axis.plot(list(of_size), oracles, ":", color=colour, linewidth=1.0, label=f"{KERNELS[kernel]}, oracle")
        rows += [(panel, kernel, *numbers, "") for numbers in zip(of_size, means, errors, oracles)]
    axis.set_ylabel("log-likelihood per target")
    return rows


def _draw_levels(axis: Axes, sizes: Sequence[int], result: Result) -> Rows:
    """A broken line for each kernel over all block sizes: the likelihood of a model without blocks."""
    rows = []
    for kernel, colour in _COLOURS.items():
        found, gap = (result.metrics[f"trained/{kernel}/{name}"] for name in ("target", "gap_marginal"))
        levels, label = [found["mean"]] * len(sizes), f"{KERNELS[kernel]}, CMANP"
        axis.plot(sizes, levels, "--", color=colour, linewidth=1.2, label=label)
        rows.append(("no blocks", kernel, "", found["mean"], gap["sem"], "", ""))
    return rows


def _saved(figure: Figure, axes: Sequence[Axes], results: Sequence[Result], rows: Rows, path: Path) -> Path:
    for axis in axes:
        sizes = sorted({float(x) for line in axis.get_lines() for x in line.get_xdata()})
        if sizes:
            axis.set_xscale("log")
            axis.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axis.minorticks_off()
        else:
            axis.text(0.5, 0.5, "no results", transform=axis.transAxes, ha="center", color=drawing.GREY)
    handles = dict(reversed(pair) for axis in axes for pair in zip(*axis.get_legend_handles_labels()))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle(f"Sizes of CMANP on 1-D functions (preset {results[0].preset})", fontsize=9.5)
    return drawing.save(figure, path, _COLUMNS, rows)


def _draw_curves(axes: Sequence[Axes], arrays: Mapping[str, np.ndarray], place: int, label: str) -> Rows:
    """A panel for each function, its context in PLACES[place]; rows are (label, function, x, truth, mean, std)."""
    rows = []
    for index, (axis, function) in enumerate(zip(axes, curves.FUNCTIONS)):
        x, truth, (mean, std) = arrays["x"], arrays["truth"][index], arrays["trained/prediction"][place, index]
        seen = (arrays[f"context_{of}"][place, index] for of in "xy")
        band = (mean - _BAND * std, mean + _BAND * std)
        axis.fill_between(x, *band, color=drawing.RED, alpha=0.2, linewidth=0, label=f"± {_BAND} std")
        axis.plot(x, mean, color=drawing.RED, linewidth=1.4, label="prediction")
        axis.plot(x, truth, "--", color=drawing.INK, linewidth=1.0, label="function")
        axis.plot(*seen, "o", color=drawing.INK, markersize=3.5, label="context")
        margin = 0.5 * np.ptp(truth)
        axis.set_ylim(truth.min() - margin, truth.max() + margin)
        rows += [(label, function.name, *map(float, numbers)) for numbers in zip(x, truth, mean, std)]
    axes[0].set_ylabel(label)
    return rows


def _explain(figure: Figure, axes: Sequence[Sequence[Axes]], heading: str) -> None:
    for axis, function in zip(axes[0], curves.FUNCTIONS):
        axis.set_title(function.name, fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle(heading, fontsize=9.5)
