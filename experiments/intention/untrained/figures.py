"""Figures 4, 5 and 15 of the Intention paper, from results of intention/untrained."""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
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
        maps[0].scatter(*key.T, c=value[:, 0], cmap="coolwarm", s=6)
        maps[0].set_title(f"context of {len(key)}\n{setting}", fontsize=8.5)
        correlations[0].scatter(*query.T, c=target[:, 0], cmap="coolwarm", s=6)
        correlations[0].set_title("truth at the queries", fontsize=8.5)
        for column, (op, name) in enumerate(ops.items(), 1):
            prediction, r = arrays[f"{setting}/{op}/prediction"], arrays[f"{setting}/{op}/r"]
            maps[column].scatter(*query.T, c=prediction[:, 0], cmap="coolwarm", s=6)
            maps[column].set_title(name, fontsize=8.5)
            correlations[column].plot(target, prediction, ".", color=drawing.RED, markersize=2.5)
            correlation = np.corrcoef(prediction.ravel(), target.ravel())[0, 1]
            correlations[column].set_title(f"r = {correlation:.3f}", fontsize=8.5)
            correlations[column].set_xlabel("truth", fontsize=8)
            rows.append((name, setting, float(r.mean()), float(r.min()), len(r)))
        correlations[1].set_ylabel("prediction", fontsize=8)
    for axis in itertools.chain.from_iterable(axes):
        axis.tick_params(labelsize=6)
    return figure, ["op", "setting", "mean r", "smallest r", "draws"], rows


def figure5(result: Result) -> Drawn:
    """How many times as long Intention takes as attention, over sizes and repeats: the paper's form beside ours."""
    sizes, slowdowns = result.examples["sizes"], {form: result.examples[f"{form}/slowdown"] for form in _FORMS}
    figure, ((axis,),) = drawing.new_figure(1, 1, width=6.0, height=3.4)
    bins, rows = np.geomspace(0.1, 30, 60), []
    for (form, slowdown), colour in zip(slowdowns.items(), (drawing.GREY, drawing.RED)):
        label = f"{_FORMS[form]}: median {np.median(slowdown):.2f}"
        axis.hist(np.clip(slowdown.ravel(), bins[0], bins[-1]), bins, color=colour, alpha=0.6, label=label)
        rows += [
            (_FORMS[form], int(n), int(d), float(median), slowdown.shape[-1])
            for (n, d), median in zip(itertools.product(sizes, sizes), np.median(slowdown, -1).ravel())
        ]
    axis.axvline(1, color=drawing.INK, linewidth=0.8)
    axis.set(xscale="log", xlabel="time of Intention / time of attention", ylabel="repetitions")
    title = f"N, d in {sizes[0]}..{sizes[-1]}, {slowdown.shape[-1]} repetitions each, {result.content['device']}"
    axis.set_title(title, fontsize=9)
    axis.set_ylim(top=1.3 * axis.get_ylim()[1])  # room for the legend
    axis.legend(fontsize=8, loc="upper left")
    return figure, ["form", "N", "d", "median slowdown", "repeats"], rows


def figure15(result: Result) -> Drawn:
    """Variance of the Intention map of random normal queries and keys, under three scalings, with its closed form."""
    arrays = result.examples
    titles = {"none": "unscaled", "sqrt": "scaled by √d", "sigmoid": "scaled by √d, regularised"}
    figure, axes = drawing.new_figure(1, len(titles), width=3.6, height=3.2)
    dimensions, rows = arrays["dimensions"], []
    for axis, (scaling, title) in zip(axes[0], titles.items()):
        known = f"{scaling}/closed_form" in arrays
        for index, (n, colour) in enumerate(zip(arrays["points"], (drawing.BLUE, drawing.GREEN, drawing.RED))):
            measured = arrays[f"{scaling}/variance"][index]
            axis.plot(dimensions, measured, "o", color=colour, markersize=2.5, label=f"N = {n}")
            theory = arrays[f"{scaling}/closed_form"][index] if known else [""] * len(dimensions)
            if known:
                axis.plot(dimensions, np.where(np.isfinite(theory), theory, np.nan), color=colour, linewidth=1)
            rows += [(scaling, n, *numbers) for numbers in zip(dimensions, map(float, measured), theory)]
        axis.set(xscale="log", yscale="log", xlabel="d", title=title)
    axes[0][0].set_ylabel("variance of an entry of Z")
    axes[0][0].legend(fontsize=8)
    axes[0][1].axhline(1, color=drawing.INK, linewidth=0.6, linestyle=":")
    figure.suptitle("Intention map of N random keys in d dimensions: measured (dots), closed form (lines)")
    return figure, ["scaling", "N", "d", "measured variance", "closed form"], rows


_DRAW = {"4": figure4, "5": figure5, "15": figure15}


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """The figure that one run measures."""
    (result,) = results
    return _save(result, folder, "figure")


def _of_all(number: str, results: Sequence[Result], folder: Path) -> Path:
    found = of_number(results, number)
    drawing.required(found, f"Figure {number} needs a result of {CONFIGS[0]} with figure={number}")
    return _save(found, folder, f"figure{number}")


def _save(result: Result, folder: Path, name: str) -> Path:
    figure, columns, rows = _DRAW[result.axes["figure"]](result)
    return drawing.save(figure, folder / f"{name}.png", columns, rows)


FIGURES = {f"intention/figure{number}": functools.partial(_of_all, number) for number in _DRAW}
