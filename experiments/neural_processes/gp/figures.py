"""Pictures of one-dimensional meta-regression from results: functions, predictions, and the likelihoods of Table 4."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from experiments.harness import drawing
from experiments.harness.results import Result, spread
from experiments.neural_processes import attention_results
from experiments.neural_processes.gp import tables
from experiments.neural_processes.gp.tables import KERNELS, PUBLISHED, SAME, title
from experiments.neural_processes.likelihoods import kind, log_likelihood
from kvq_jax.models import MODELS, family

CONFIGS = tables.CONFIGS
_BAND = 2  # standard deviations on each side
_ACROSS = 4  # panels in a line
_LEAST = -3  # log-likelihood that is drawn
_LINE, _BROKEN = dict(linewidth=1.4), dict(linewidth=1.0, linestyle="--")
_PREDICTION = "trained/prediction"  # among the examples of a result


def run_figure(result: Result, folder: Path) -> Path:
    """One run: a function of each kernel (rows) seen through more and more of its points (columns)."""
    arrays, kernels = result.examples, result.config["evaluation"]["kernels"]
    shape = len(kernels), len(arrays["counts"])
    figure, axes = drawing.new_figure(*shape, width=3.4, height=2.3, sharex=True, sharey="row")
    for row, kernel in enumerate(kernels):
        for column, count in enumerate(arrays["counts"]):
            _draw_function(axes[row][column], arrays, row, column)
            if row == 0:
                axes[row][column].set_title(f"{count} context points")
        axes[row][0].set_ylabel(f"{KERNELS[kernel]}, y")
    figure.suptitle(f"{title(result)} ({drawing.EFFORTS[result.preset]})")
    _explain(figure, axes)
    return drawing.save(figure, folder / "figure.png")


def functions(results: Sequence[Result], folder: Path, kernel: str) -> Path:
    """Every model on the same function of a kernel, with the middle number of context points."""
    name = f"gp_functions_{kernel}"
    cells = _required(results, name)
    cells = {model: cells[model, "published"] for model in MODELS if (model, "published") in cells}
    whose = f"{len(cells)} of {len(family('neural_process'))} models"
    return _functions(cells, lambda model: MODELS[model].label, whose, folder / f"{name}.png", kernel)


def attention(results: Sequence[Result], folder: Path, kernel: str) -> Path:
    """As `functions`, by ANP with each kind of attention of the ANP slides."""
    cells = attention_results.of_anp(results, "gp")
    drawing.required(cells, f"anp/functions_{kernel} needs results of {attention_results.CONFIG} with data=gp")
    whose = f"ANP with each attention, protocol {next(iter(cells.values())).axes['protocol']}"
    return _functions(cells, str, whose, folder / f"functions_{kernel}.png", kernel)


def _functions(cells: Mapping[str, Result], label: Callable, whose: str, path: Path, kernel: str) -> Path:
    """A panel for each result, under the label of its name; all of one function, unless their evaluations differ."""
    lines = -(-len(cells) // _ACROSS)
    figure, axes = drawing.new_figure(lines, min(_ACROSS, len(cells)), width=3.0, height=2.1, sharex=True, sharey=True)
    rows, truths = [], []
    for axis, (cell, result) in zip(itertools.chain(*axes), cells.items()):
        arrays = result.examples
        row, column = result.config["evaluation"]["kernels"].index(kernel), len(arrays["counts"]) // 2
        _draw_function(axis, arrays, row, column)
        axis.set_title(f"{label(cell)}, {result.content['steps']} steps", fontsize=9)
        drawn = arrays["x"], *arrays[_PREDICTION][row, column], *arrays["oracle"][row, column]
        rows += [(cell, *map(float, numbers)) for numbers in zip(*drawn)]
        truths.append(arrays["oracle"][row, column])
    for line in axes:
        line[0].set_ylabel("y")
    drawing.hide_after(len(cells), axes)
    effort = drawing.EFFORTS[next(iter(cells.values())).preset]
    same = all(truth.shape == truths[0].shape and np.allclose(truth, truths[0], atol=1e-2) for truth in truths)
    which = "One function" if same else "Functions, not the same in all panels,"
    figure.suptitle(f"{which} of the {KERNELS[kernel]} kernel, {whose} ({effort})")
    _explain(figure, axes)
    columns = ["model", "x", "mean", "std", "oracle_mean", "oracle_std"]
    return drawing.save(figure, path, columns, rows)


def likelihoods(results: Sequence[Result], folder: Path) -> Path:
    """Table 4 as a picture: our likelihoods, with the published and the same std, the paper's, and the oracle's.

    Models that predict each target alone come first: the likelihood of all targets jointly is another metric.
    """
    cells = _required(results, "gp_likelihoods")
    found = {name for name, form in cells if form in _MARKS}
    models = sorted((model for model in MODELS if model in found), key=lambda model: kind(model) == "joint")
    alone = sum(kind(model) == "marginal" for model in models)
    figure, (axes,) = drawing.new_figure(1, len(KERNELS), width=3.4, height=1.2 + 0.27 * len(models), sharey=True)
    rows = []
    for axis, kernel in zip(axes, KERNELS):
        for place, model in enumerate(models):
            of_std = {std: cells.get((model, std)) for std in _MARKS}
            rows.append((kernel, model, kind(model), *_draw_likelihood(axis, place, kernel, model, of_std)))
        axis.set_title(KERNELS[kernel])
        axis.set_xlabel("log-likelihood per target")
        axis.set_xlim(left=max(axis.get_xlim()[0], _LEAST))
        if 0 < alone < len(models):
            axis.axhline(alone - 0.5, color=drawing.INK, linewidth=0.6, linestyle=":")
    names = [MODELS[model].label + ("" if place < alone else " (joint)") for place, model in enumerate(models)]
    axes[0].set_yticks(range(len(models)), names)
    axes[0].invert_yaxis()
    handles = [Line2D([], [], **{"linestyle": "none"} | look) for look in (*_MARKS.values(), _PAPER)]
    handles.append(Line2D([], [], color=drawing.INK, linewidth=1.2, label="true kernel (oracle)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    preset = next(iter(cells.values())).preset
    told = spread(cells.values(), "trained/rbf/target", "functions")
    effort = drawing.EFFORTS[preset]
    figure.suptitle(
        f"1-D meta-regression ({effort}); bars: standard error over {told}; below {_LEAST} not shown", fontsize=9.5
    )
    columns = ["kernel", "model", "likelihood"]
    columns += [f"{look['label']}{error}" for look in _MARKS.values() for error in ("", ", sem")] + ["paper", "oracle"]
    return drawing.save(figure, folder / "gp_likelihoods.png", columns, rows)


FIGURES = {f"cmanp/gp_functions_{kernel}": functools.partial(functions, kernel=kernel) for kernel in KERNELS}
FIGURES |= {f"anp/functions_{kernel}": functools.partial(attention, kernel=kernel) for kernel in KERNELS}
FIGURES["cmanp/gp_likelihoods"] = likelihoods

_MARKS = {
    PUBLISHED: dict(marker="o", color=drawing.RED, markersize=5, label="ours, published std"),
    SAME: dict(marker="o", color=drawing.RED, markersize=9, markerfacecolor="none", label="ours, same std"),
}
_PAPER = dict(marker="x", color=drawing.BLUE, markersize=6, zorder=5, linestyle="none", label="the paper, 100000 steps")


def _draw_likelihood(
    axis: Axes, place: int, kernel: str, model: str, of_std: Mapping[str, Result | None]
) -> list[float | None]:
    """A line of the panel; returns mean and standard error for each std, the paper's number and the oracle's."""
    run = of_std[PUBLISHED] or of_std[SAME]
    oracle = log_likelihood(run, f"{kernel}/oracle_{kind(model)}").mean
    ours = {std: log_likelihood(result, f"{kernel}/target") for std, result in of_std.items()}
    number = tables.paper(model, PUBLISHED, run.axes["protocol"], kernel)
    paper = None if isinstance(number, str) else number.mean
    if oracle is not None:
        ends = [place - 0.5, place + 0.5]
        axis.plot([oracle] * 2, ends, color=drawing.INK, linewidth=1.2, solid_capstyle="butt")
    for std, cell in ours.items():
        if cell.known and cell.mean > _LEAST:
            axis.errorbar(cell.mean, place, xerr=cell.error, linestyle="none", **_MARKS[std])
    if paper is not None:
        axis.plot(paper, place, **_PAPER)
    return [*(number for cell in ours.values() for number in (cell.mean, cell.error)), paper, oracle]


def _required(results: Sequence[Result], figure: str) -> tables.Cells:
    return drawing.required(tables.chosen_results(results), f"{figure} needs results of {CONFIGS[0]}")


def _draw_function(axis: Axes, arrays: Mapping[str, np.ndarray], row: int, column: int) -> None:
    """The posterior of the true kernel, the prediction, and the points of one function; hollow: outside the context."""
    looks = ("oracle", drawing.INK, 0.13, _BROKEN), (_PREDICTION, drawing.RED, 0.2, _LINE)
    for name, colour, alpha, line in looks:
        mean, std = arrays[name][row, column]
        axis.fill_between(arrays["x"], mean - _BAND * std, mean + _BAND * std, color=colour, alpha=alpha, linewidth=0)
        axis.plot(arrays["x"], mean, color=colour, **line)
    x, y, count = arrays["context_x"][row], arrays["context_y"][row], arrays["counts"][column]
    axis.plot(x[count:], y[count:], "o", color=drawing.INK, markersize=3, fillstyle="none", markeredgewidth=0.6)
    axis.plot(x[:count], y[:count], "o", color=drawing.INK, markersize=4)
    mean, std = arrays["oracle"][row, 0]
    axis.set_ylim((mean - 2 * _BAND * std).min(), (mean + 2 * _BAND * std).max())


def _explain(figure: Figure, axes: Sequence[Sequence[Axes]]) -> None:
    """Labels the x axes and draws the legend below the panels."""
    for axis in axes[-1]:
        axis.set_xlabel("x")
    point = functools.partial(Line2D, [], [], marker="o", linestyle="none", color=drawing.INK)
    red, ink = (functools.partial(Line2D, [], [], color=colour) for colour in (drawing.RED, drawing.INK))
    shown = {
        f"prediction ± {_BAND} std": (Patch(color=drawing.RED, alpha=0.3), red(**_LINE)),
        f"posterior of the true kernel ± {_BAND} std": (Patch(color=drawing.INK, alpha=0.2), ink(**_BROKEN)),
        "context": point(),
        "not shown to the model": point(fillstyle="none"),
    }
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown), fontsize=8)
