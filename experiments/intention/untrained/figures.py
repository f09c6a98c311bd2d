"""Figures 4, 5 and 15 of the Intention paper, from results of intention/untrained."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.intention.untrained.tables import CONFIGS, of_number

# Operator -> the paper's name.
_OPS = {"softmax": "Attention", "linear": "Linear attention", "intention": "Intention", "sigma_intention": "σIntention"}
# Form of Intention whose time is measured -> its name.
_FORMS = {"inverse": "explicit inverse, as the paper writes it", "intention": "Cholesky, route by cost (ours)"}

Drawn = tuple[Figure, list[str], list[tuple]]  # the picture, and the columns and rows of its numbers


def figure4(result: Result) -> Drawn:
    """Untrained operators on linear regression in the plane: maps of predictions; predictions against the truth."""
    arrays = result.examples
    ops = {op: _OPS.get(op, op) for _, op, _ in (metric.split("/") for metric in result.metrics)}
    figure, axes = drawing.new_figure(4, 1 + len(ops), width=2.1, height=2.0)
    rows = []
    for row, setting in enumerate(("interpolation", "extrapolation")):
        query, key, value, target = (arrays[f"{setting}/{array}"] for array in ("query", "key", "value", "target"))
        maps, correlations = axes[2 * row], axes[2 * row + 1]
        _map(maps[0], key, value, f"{setting}:\ncontext of {len(key)}")
        shades = _map(correlations[0], query, target, "truth at the queries")
        for column, (op, name) in enumerate(ops.items(), 1):
            prediction, r = arrays[f"{setting}/{op}/prediction"], arrays[f"{setting}/{op}/r"]
            _map(maps[column], query, prediction, name)
            correlations[column].plot(target, prediction, ".", color=drawing.RED, markersize=2.5)
            correlation = np.corrcoef(prediction.ravel(), target.ravel())[0, 1]
            correlations[column].set_title(f"r = {correlation:.3f}", fontsize=8.5)
            correlations[column].set_xlabel("truth", fontsize=8)
            rows.append((name, setting, float(r.mean()), float(r.min()), len(r)))
        correlations[1].set_ylabel("prediction", fontsize=8)
        bar = figure.colorbar(shades, ax=[*maps, *correlations], shrink=0.6, aspect=40, ticks=shades.get_clim())
        bar.ax.set_yticklabels(["least", "most"], fontsize=7)
        bar.set_label("value, in the range of its panel", fontsize=8)
    for axis in itertools.chain.from_iterable(axes):
        axis.tick_params(labelsize=6)
    return figure, ["op", "setting", "mean r", "smallest r", "draws"], rows


def _map(axis: Axes, points: np.ndarray, values: np.ndarray, title: str) -> PathCollection:
    """Points [n, 2] of the plane in the colours of their values [n, 1], whose range differs between operators."""
    axis.set_title(title, fontsize=8.5)
    axis.set_xlabel("$x_1$", fontsize=8, labelpad=0)
    axis.set_ylabel("$x_2$", fontsize=8, labelpad=-2)
    return axis.scatter(*points.T, c=values[:, 0], cmap="coolwarm", s=6)


def figure5(result: Result) -> Drawn:
    """How many times as long Intention takes as attention, over sizes and repeats: the paper's form beside ours."""
    sizes, slowdowns = result.examples["sizes"], {form: result.examples[f"{form}/slowdown"] for form in _FORMS}
    figure, ((axis,),) = drawing.new_figure(1, 1, width=6.0, height=3.4)
    every = np.concatenate([slowdown.ravel() for slowdown in slowdowns.values()])
    bins, rows = np.geomspace(every.min(), every.max(), 60), []
    for (form, slowdown), colour in zip(slowdowns.items(), (drawing.GREY, drawing.RED)):
        label = f"{_FORMS[form]}: median {np.median(slowdown):.2f}"
        axis.hist(slowdown.ravel(), bins, color=colour, alpha=0.6, label=label)
        rows += [
            (_FORMS[form], int(n), int(d), float(median), slowdown.shape[-1])
            for (n, d), median in zip(itertools.product(sizes, sizes), np.median(slowdown, -1).ravel())
        ]
    axis.axvline(1, color=drawing.INK, linewidth=0.8, linestyle="--", label="as long as attention")
    axis.set(xscale="log", xlabel="time of Intention / time of attention", ylabel="repetitions")
    drawing.plain_ticks(axis.xaxis)
    repeats = f"{slowdown.shape[-1]} repetitions of each pair"
    axis.set_title(f"N and d from {sizes[0]} to {sizes[-1]}, {repeats}, {result.content['device']}", fontsize=9)
    axis.set_ylim(top=1.4 * axis.get_ylim()[1])  # room for the legend
    axis.legend(fontsize=8, loc="upper left")
    return figure, ["form", "N", "d", "median slowdown", "repeats"], rows


def figure15(result: Result) -> Drawn:
    """Variance of the Intention map of random normal queries and keys, under three scalings, with its closed form."""
    arrays = result.examples
    titles = {"none": "unscaled", "sqrt": "scaled by √d", "sigmoid": "scaled by √d, regularised\n(no closed form)"}
    figure, axes = drawing.new_figure(1, len(titles), width=3.6, height=3.2)
    dimensions, rows = arrays["dimensions"], []
    for axis, (scaling, title) in zip(axes[0], titles.items()):
        known = f"{scaling}/closed_form" in arrays
        for index, (n, colour) in enumerate(zip(arrays["points"], (drawing.BLUE, drawing.GREEN, drawing.RED))):
            measured = arrays[f"{scaling}/variance"][index]
            axis.plot(dimensions, measured, "o", color=colour, markersize=2.5, label=f"N = {n}")
            theory = arrays[f"{scaling}/closed_form"][index] if known else [""] * len(dimensions)
            if known:
                pole = np.searchsorted(dimensions, n)  # where d = N, on the grid or not
                line = (np.insert(of, pole, value) for of, value in ((dimensions, n), (theory, np.inf)))
                axis.plot(*(np.where(np.isfinite(of), of, np.nan) for of in line), color=colour, linewidth=1)
            rows += [(scaling, n, *numbers) for numbers in zip(dimensions, map(float, measured), theory)]
        axis.set(xscale="log", yscale="log", xlabel="dimension d", title=title)
        drawing.plain_ticks(axis.xaxis, [1, 4, *map(int, arrays["points"]), dimensions[-1]])
    axes[0][0].set_ylabel("variance of an entry of Z")
    axes[0][0].legend(fontsize=8)
    axes[0][1].axhline(1, color=drawing.INK, linewidth=0.6, linestyle=":")
    measured = "measured (dots) and in closed form (lines), where it is infinite for |N - d| < 2"
    figure.suptitle(f"Variance of the Intention map of N random keys: {measured}", fontsize=10)
    return figure, ["scaling", "N", "d", "measured variance", "closed form"], rows


_DRAW = {"4": figure4, "5": figure5, "15": figure15}


def run_figure(result: Result, folder: Path) -> Path:
    """The figure that one run measures."""
    return _save(result, folder, "figure")


def _of_all(number: str, results: Sequence[Result], folder: Path) -> Path:
    found = of_number(results, number)
    drawing.required(found, f"Figure {number} needs a result of {CONFIGS[0]} with figure={number}")
    return _save(found, folder, f"figure{number}")


def _save(result: Result, folder: Path, name: str) -> Path:
    figure, columns, rows = _DRAW[result.axes["figure"]](result)
    return drawing.save(figure, folder / f"{name}.png", columns, rows)


FIGURES = {f"intention/figure{number}": functools.partial(_of_all, number) for number in _DRAW}
