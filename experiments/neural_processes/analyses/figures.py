"""Figures 4, 6, 9 and 10 of the CMANP paper from results of neural_processes/analyses and /complexity."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import drawing
from experiments.harness.results import Result, comparable, several
from experiments.neural_processes.analyses import curves, tables
from experiments.neural_processes.complexity import tables as complexity
from experiments.neural_processes.gp.tables import KERNELS, title
from kvq_jax.models import MODELS

CONFIGS = tables.CONFIGS
_BAND = 2  # standard deviations on each side
_COLOURS = {"rbf": drawing.RED, "matern": drawing.BLUE}
_LIKELIHOOD = "log-likelihood per target"
_LOOKS = (dict(linestyle=":", label="posterior of the true kernel"),)  # of lines beside those of the kernels
_PLACE = {9: 0, 10: 1}  # number of a figure -> index in curves.PLACES
_COLUMNS = ["panel", "kernel", "size", "log_likelihood", "sem_of_gap", "oracle", "milliseconds"]

Rows = list[tuple]


def run_figure(result: Result, folder: Path) -> Path:
    """One run: the functions of Figure 9 above, those of Figure 10 below."""
    figure, axes = drawing.new_figure(len(curves.PLACES), len(curves.FUNCTIONS), height=2.3, sharex=True, sharey="col")
    for place, label in enumerate(curves.PLACES):
        _draw_curves(axes[place], result.examples, place, label)
    _explain(figure, axes, f"{title(result)} ({drawing.EFFORTS[result.preset]})")
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
    by_latents = tables.curve(own, "latents", "block_latents")
    rows += _draw_likelihoods(right, "both", by_latents, "marginal")
    of_blocks, of_latents = (several(run.steps for run in runs.values()) for runs in (models, by_latents))
    left.set(xlabel="block size", ylabel="milliseconds a function", title="CMANP-AND, time", ylim=(0, None))
    middle.set(xlabel="block size", ylabel=_LIKELIHOOD, title=f"CMANP-AND, jointly, {of_blocks} steps")
    right.set(xlabel="latents, $|L_I| = |L_B|$", ylabel=_LIKELIHOOD, title=f"CMANP, {of_latents} steps")
    looks = [dict(linestyle="--", label="CMANP, each target alone, as many steps"), *_LOOKS]
    return _saved(figure, (left, middle, right), own, rows, folder / "figure4.png", looks)


def figure6(results: Sequence[Result], folder: Path) -> Path:
    """CMANP's likelihood against |L_B| (left), |L_I| (middle) and the width (right); other sizes as in most cells."""
    own = _own(results, "Figure 6")
    figure, (axes,) = drawing.new_figure(1, 3, width=3.4, height=3.0, sharey=True)
    panels = {"block_latents": "block latents, $|L_B|$", "latents": "latents, $|L_I|$", "width": "width"}
    rows = []
    for axis, (varied, label) in zip(axes, panels.items()):
        rows += _draw_likelihoods(axis, varied, tables.curve(own, varied), "marginal")
        axis.set_xlabel(label)
    axes[0].set_ylabel(_LIKELIHOOD)
    return _saved(figure, axes, own, rows, folder / "figure6.png", _LOOKS)


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
    _explain(figure, axes, f"Context in {curves.PLACES[place]} of training ({drawing.EFFORTS[preset]})")
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
        axis.plot(list(of_size), oracles, ":", color=colour, linewidth=1.2)
        rows += [(panel, kernel, *numbers, "") for numbers in zip(of_size, means, errors, oracles)]
    return rows


def _draw_levels(axis: Axes, sizes: Sequence[int], result: Result) -> Rows:
    """A broken line for each kernel over all block sizes: the likelihood of a model without blocks."""
    rows = []
    for kernel, colour in _COLOURS.items():
        found, gap = (result.metrics[f"trained/{kernel}/{name}"] for name in ("target", "gap_marginal"))
        axis.plot(sizes, [found["mean"]] * len(sizes), "--", color=colour, linewidth=1.2)
        rows.append(("no blocks", kernel, "", found["mean"], gap["sem"], "", ""))
    return rows


def _saved(
    figure: Figure, axes: Sequence[Axes], results: Sequence[Result], rows: Rows, path: Path, looks: Sequence[dict]
) -> Path:
    """Saves the figure with plain sizes at its axes; the legend has the kernels and, in grey, the looks of lines."""
    for axis in axes:
        sizes = sorted({float(x) for line in axis.get_lines() for x in line.get_xdata()})
        if sizes:
            axis.set_xscale("log")
            drawing.plain_ticks(axis.xaxis, sizes)
        else:
            axis.text(0.5, 0.5, "no results", transform=axis.transAxes, ha="center", color=drawing.GREY)
    kernels = [
        dict(color=colour, marker="o", markersize=4, label=KERNELS[kernel]) for kernel, colour in _COLOURS.items()
    ]
    drawing.legend_below(figure, [*kernels, *(dict(color=drawing.GREY, **look) for look in looks)])
    effort, bars = drawing.EFFORTS[results[0].preset], "bars: standard error of what is lacking to the posterior"
    figure.suptitle(f"Sizes of CMANP on 1-D functions ({effort}); {bars}", fontsize=9.5)
    return drawing.save(figure, path, _COLUMNS, rows)


def _draw_curves(axes: Sequence[Axes], arrays: Mapping[str, np.ndarray], place: int, label: str) -> Rows:
    """A panel for each function, its context in PLACES[place]; rows are (label, function, x, truth, mean, std)."""
    rows = []
    for index, (axis, function) in enumerate(zip(axes, curves.FUNCTIONS)):
        x, truth, (mean, std) = arrays["x"], arrays["truth"][index], arrays["trained/prediction"][place, index]
        seen = (arrays[f"context_{of}"][place, index] for of in "xy")
        height = np.ptp(truth)  # a band further from the function than this is cut
        band = np.clip((mean - _BAND * std, mean + _BAND * std), truth.min() - height, truth.max() + height)
        axis.fill_between(x, *band, color=drawing.RED, alpha=0.2, linewidth=0, label=f"± {_BAND} std")
        axis.plot(x, mean, color=drawing.RED, linewidth=1.4, label="prediction")
        axis.plot(x, truth, "--", color=drawing.INK, linewidth=1.0, label="true function")
        axis.plot(*seen, "o", color=drawing.INK, markersize=3.5, label="context")
        rows += [(label, function.name, *map(float, numbers)) for numbers in zip(x, truth, mean, std)]
    axes[0].set_ylabel(f"{label}\ny")
    return rows


def _explain(figure: Figure, axes: Sequence[Sequence[Axes]], heading: str) -> None:
    for axis, function in zip(axes[0], curves.FUNCTIONS):
        axis.set_title(function.name, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("x")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle(heading, fontsize=9.5)
