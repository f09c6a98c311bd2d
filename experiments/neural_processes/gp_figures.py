"""Pictures of one-dimensional meta-regression: functions and predictions, and the likelihoods of Table 4, from results."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.harness import drawing
from experiments.harness.errors import UserError
from experiments.harness.results import Result
from experiments.neural_processes.gp_tables import KERNELS, chosen_results, kind, log_likelihood, title
from experiments.neural_processes.published import MODELS, TABLE4

_BAND = 2  # standard deviations on each side
_ACROSS = 4  # panels in a line
_LEAST = -3  # log-likelihood that is drawn
_PREDICTION = "trained/prediction"  # among the examples of a result


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run: a function of each kernel (rows) seen through more and more of its points (columns)."""
    (result,) = results
    arrays, kernels = result.examples, result.config["evaluation"]["kernels"]
    figure, axes = drawing.new_figure(
        len(kernels), len(arrays["counts"]), width=3.4, height=2.3, sharex=True, sharey="row"
    )
    for row, kernel in enumerate(kernels):
        for column, count in enumerate(arrays["counts"]):
            _draw_function(axes[row][column], arrays, row, column)
            if row == 0:
                axes[row][column].set_title(f"{count} context points")
        axes[row][0].set_ylabel(f"{KERNELS[kernel]}, y")
    figure.suptitle(f"{title(result)} (preset {result.preset})")
    _explain(figure, axes)
    return drawing.save(figure, folder / "figure.png")


def functions(results: Sequence[Result], folder: Path, kernel: str = "rbf") -> Path:
    """Every model on the same function of a kernel and the middle number of its points."""
    name = f"gp_functions_{kernel}"
    cells = _required(results, name)
    cells = {model: cells[model, "published"] for model in MODELS if (model, "published") in cells}
    lines = -(-len(cells) // _ACROSS)
    figure, axes = drawing.new_figure(lines, min(_ACROSS, len(cells)), width=3.0, height=2.1, sharex=True, sharey=True)
    panels = [axis for line in axes for axis in line]
    rows = []
    for axis, (model, result) in zip(panels, cells.items()):
        arrays = result.examples
        row, column = result.config["evaluation"]["kernels"].index(kernel), len(arrays["counts"]) // 2
        _draw_function(axis, arrays, row, column)
        axis.set_title(f"{MODELS[model]}, {result.content['steps']} steps", fontsize=9)
        drawn = arrays["x"], *arrays[_PREDICTION][row, column], *arrays["oracle"][row, column]
        rows += [(model, *map(float, numbers)) for numbers in zip(*drawn)]
    for line in axes:
        line[0].set_ylabel("y")
    drawing.hide_after(len(cells), axes)
    figure.suptitle(
        f"One function of the {KERNELS[kernel]} kernel, every model (preset {next(iter(cells.values())).preset})"
    )
    _explain(figure, axes)
    drawing.save_numbers(folder / f"{name}.csv", ["model", "x", "mean", "std", "oracle_mean", "oracle_std"], rows)
    return drawing.save(figure, folder / f"{name}.png")


def likelihoods(results: Sequence[Result], folder: Path) -> Path:
    """Table 4 as a picture: our likelihoods, with the published and the same std, the paper's, and the oracle's.

    Models that predict each target alone come first: the likelihood of all targets jointly is another metric.
    """
    cells = _required(results, "gp_likelihoods")
    kernels, models = list(KERNELS), [model for model in MODELS if any(model == name for name, _ in cells)]
    models.sort(key=lambda model: kind(model) == "joint")
    alone = sum(kind(model) == "marginal" for model in models)
    figure, axes = drawing.new_figure(1, len(kernels), width=3.4, height=1.2 + 0.27 * len(models), sharey=True)
    rows = []
    for axis, kernel in zip(axes[0], kernels):
        for place, model in enumerate(models):
            result = cells.get((model, "published")) or cells[model, "same"]
            oracle = log_likelihood(result, f"{kernel}/oracle_{kind(model)}").mean
            ours = {std: log_likelihood(cells.get((model, std)), f"{kernel}/target") for std in _MARKS}
            paper = TABLE4.get(model, {}).get(kernel, (None,))[0]
            if oracle is not None:
                axis.plot(
                    [oracle] * 2, [place - 0.5, place + 0.5], color=drawing.INK, linewidth=1.2, solid_capstyle="butt"
                )
            for std, cell in ours.items():
                if cell.known and cell.mean > _LEAST:
                    axis.errorbar(cell.mean, place, xerr=cell.error, linestyle="none", **_MARKS[std])
            if paper is not None:
                axis.plot(paper, place, **_PAPER)
            numbers = [number for cell in ours.values() for number in (cell.mean, cell.error)]
            rows.append((kernel, model, kind(model), *numbers, paper, oracle))
        axis.set_title(KERNELS[kernel])
        axis.set_xlabel("log-likelihood per target")
        axis.set_xlim(left=max(axis.get_xlim()[0], _LEAST))
        if 0 < alone < len(models):
            axis.axhline(alone - 0.5, color=drawing.INK, linewidth=0.6, linestyle=":")
    names = [MODELS[model] + ("" if place < alone else " (joint)") for place, model in enumerate(models)]
    axes[0][0].set_yticks(range(len(models)), names)
    axes[0][0].invert_yaxis()
    handles = [*(axes[0][0].plot([], [], **{"linestyle": "none"} | look)[0] for look in (*_MARKS.values(), _PAPER))]
    handles += axes[0][0].plot([], [], color=drawing.INK, linewidth=1.2, label="true kernel (oracle)")
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle(f"1-D meta-regression (preset {next(iter(cells.values())).preset}); below {_LEAST} not shown")
    columns = [
        "kernel",
        "model",
        "likelihood",
        "published std",
        "published std, sem",
        "same std",
        "same std, sem",
        "paper",
        "oracle",
    ]
    drawing.save_numbers(folder / "gp_likelihoods.csv", columns, rows)
    return drawing.save(figure, folder / "gp_likelihoods.png")


_MARKS = {
    "published": dict(marker="o", color=drawing.RED, markersize=5, label="ours, published std"),
    "same": dict(marker="o", color=drawing.RED, markersize=5, markerfacecolor="white", label="ours, same std"),
}
_PAPER = dict(marker="x", color=drawing.BLUE, markersize=6, linestyle="none", label="the paper, 100000 steps")


def _required(results: Sequence[Result], figure: str):
    cells = chosen_results(results)
    if not cells:
        raise UserError(f"{figure} needs results of neural_processes/gp; there are none")
    return cells


def _draw_function(axis: Axes, arrays: Mapping[str, np.ndarray], row: int, column: int) -> None:
    """The posterior of the true kernel, the prediction, and the points of one function, those not in the context hollow."""
    looks = (
        ("oracle", drawing.INK, 0.13, dict(linewidth=1.0, linestyle="--")),
        (_PREDICTION, drawing.RED, 0.2, dict(linewidth=1.4)),
    )
    for name, colour, alpha, line in looks:
        mean, std = arrays[name][row, column]
        axis.fill_between(arrays["x"], mean - _BAND * std, mean + _BAND * std, color=colour, alpha=alpha, linewidth=0)
        axis.plot(arrays["x"], mean, color=colour, **line)
    x, y, count = arrays["context_x"][row], arrays["context_y"][row], arrays["counts"][column]
    axis.plot(x[count:], y[count:], "o", color=drawing.INK, markersize=3, fillstyle="none", markeredgewidth=0.6)
    axis.plot(x[:count], y[:count], "o", color=drawing.INK, markersize=4)
    mean, std = arrays["oracle"][row, 0]
    low, high = (mean - 2 * _BAND * std).min(), (mean + 2 * _BAND * std).max()
    axis.set_ylim(low, high)


def _explain(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    """Names x below the panels, and below it what they show."""
    for axis in axes[-1]:
        axis.set_xlabel("x")
    handles = [
        (Patch(color=drawing.RED, alpha=0.3), Line2D([], [], color=drawing.RED, linewidth=1.4)),
        (Patch(color=drawing.INK, alpha=0.2), Line2D([], [], color=drawing.INK, linewidth=1.0, linestyle="--")),
        Line2D([], [], marker="o", linestyle="none", color=drawing.INK),
        Line2D([], [], marker="o", linestyle="none", color=drawing.INK, fillstyle="none"),
    ]
    labels = [
        f"prediction ± {_BAND} std",
        f"posterior of the true kernel ± {_BAND} std",
        "context",
        "not shown to the model",
    ]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), fontsize=8)
