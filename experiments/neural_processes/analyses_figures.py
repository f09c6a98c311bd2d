"""Figures 4, 6, 9 and 10 of the CMANP paper, from results of neural_processes/analyses."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import drawing
from experiments.harness.errors import UserError
from experiments.harness.results import Result, comparable
from experiments.neural_processes import complexity, curves
from experiments.neural_processes.gp_tables import KERNELS, title
from experiments.neural_processes.published import MODELS

_SIZES = ("latents", "block_latents", "width")  # the axes that hold them
_COLOURS = {"rbf": drawing.RED, "matern": drawing.BLUE}
_COLUMNS = ["panel", "kernel", "size", "log_likelihood", "sem_of_gap", "oracle", "milliseconds"]

Rows = list[tuple]


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run: the functions of Figure 9 above, those of Figure 10 below."""
    (result,) = results
    figure, axes = drawing.new_figure(len(curves.PLACES), len(curves.FUNCTIONS), height=2.3, sharex=True, sharey="col")
    for place, label in enumerate(curves.PLACES):
        curves.draw(axes[place], result.examples, place, label)
    _finish(figure, axes, f"{title(result)} (preset {result.preset})")
    return drawing.save(figure, folder / "figure.png")


def figure4(results: Sequence[Result], folder: Path) -> Path:
    """CMANP-AND: time (left) and likelihood (middle) against the block size; CMANP: likelihood against |L_I| = |L_B| (right).

    The broken lines in the middle are the CMANP that has been trained as long. The time is measured now, on arguments of the evaluation's shapes: one function, all slots of its context and targets.
    """
    own = _own(results, "Figure 4")
    figure, ((left, middle, right),) = drawing.new_figure(1, 3, width=3.4, height=3.0)
    rows = []
    models = study_of_blocks(own)
    blocks, without = models.get("cmanp_and"), models.get("cmanp")
    if blocks:
        sizes = blocks.config["evaluation"]["block_sizes"]
        times = [1e3 * _seconds(blocks, size) for size in sizes]
        left.plot(sizes, times, "o-", color=drawing.INK, markersize=4)
        rows += [("time", "", size, "", "", "", time) for size, time in zip(sizes, times)]
        rows += _draw_likelihoods(middle, "block size", {size: (blocks, f"@{size}") for size in sizes}, "joint")
    if without:
        rows += _draw_levels(middle, sizes, without)
    rows += _draw_likelihoods(right, "both", _marginal(own, "latents", "block_latents"), "marginal")
    left.set(xlabel="block size", ylabel="milliseconds a function", title="CMANP-AND, time")
    middle.set(xlabel="block size", title="CMANP-AND")
    right.set(xlabel="latents, $|L_I| = |L_B|$", title="CMANP")
    return _saved(figure, (left, middle, right), own, rows, folder / "figure4")


def figure6(results: Sequence[Result], folder: Path) -> Path:
    """CMANP's likelihood against |L_B| (left), |L_I| (middle) and the width (right), the other sizes as in most cells."""
    own = _own(results, "Figure 6")
    figure, (axes,) = drawing.new_figure(1, 3, width=3.4, height=3.0, sharey=True)
    panels = {"block_latents": "block latents, $|L_B|$", "latents": "latents, $|L_I|$", "width": "width"}
    rows = []
    for axis, (varied, label) in zip(axes, panels.items()):
        rows += _draw_likelihoods(axis, varied, _marginal(own, varied), "marginal")
        axis.set_xlabel(label)
    return _saved(figure, axes, own, rows, folder / "figure6")


def figure9(results: Sequence[Result], folder: Path) -> Path:
    """The three functions, their context from all of the range of training: every model."""
    return _draw_curves(results, 0, folder, "figure9", "Figure 9")


def figure10(results: Sequence[Result], folder: Path) -> Path:
    """The three functions, their context from a part of the range of training: every model."""
    return _draw_curves(results, 1, folder, "figure10", "Figure 10")


def curve(results: Sequence[Result], *varied: str) -> dict[int, Result]:
    """Size -> the CMANP with it on all the axes `varied`, its other sizes as in most cells; sizes increasing."""
    base = {"model": "cmanp", "study": "sizes"} | _base_sizes(results)
    found = {}
    for result in results:
        axes = result.content["axes"]
        sizes = {axes[axis] for axis in varied}
        if len(sizes) == 1 and all(axes[axis] == value for axis, value in base.items() if axis not in varied):
            found[int(sizes.pop())] = result
    return dict(sorted(found.items()))


def study_of_blocks(results: Sequence[Result]) -> dict[str, Result]:
    """Model -> its result in the study of blocks."""
    base = {"study": "blocks"} | _base_sizes(results)
    found = {
        result.content["axes"]["model"]: result for result in results if base.items() <= result.content["axes"].items()
    }
    return {model: found[model] for model in MODELS if model in found}


def _own(results: Sequence[Result], figure: str) -> list[Result]:
    own = comparable(results, "neural_processes/analyses", lambda result: tuple(sorted(result.content["axes"].items())))
    if not own:
        raise UserError(f"{figure} needs results of neural_processes/analyses; there are none")
    return list(own.values())


def _base_sizes(results: Sequence[Result]) -> dict[str, str]:
    return {axis: statistics.mode(result.content["axes"][axis] for result in results) for axis in _SIZES}


def _marginal(results: Sequence[Result], *varied: str) -> dict[int, tuple[Result, str]]:
    return {size: (result, "") for size, result in curve(results, *varied).items()}


def _seconds(result: Result, block_size: int) -> float:
    """Time of the likelihood of one function with blocks of a size, by a model of the result's sizes."""
    fields = {name: value for name, value in result.config["model"].items() if name != "name"} | {
        "block_size": block_size
    }
    task = result.config["task"]
    model = complexity.build(result.config["model"]["name"], **fields)
    return complexity.seconds(complexity.judging(model, task["max_context"], task["max_points"] - task["min_context"]))


def _draw_likelihoods(axis: Axes, panel: str, of_size: Mapping[int, tuple[Result, str]], kind: str) -> Rows:
    """A line for each kernel, from size -> (result, suffix of its metrics); error bars are those of the gap to the oracle."""
    rows = []
    for kernel, colour in _COLOURS.items():
        metrics = {
            size: (result.metrics, f"trained/{kernel}/{{}}{suffix}") for size, (result, suffix) in of_size.items()
        }
        drawn = np.array(
            [  # None, which is not finite, becomes NaN
                (
                    found[name.format("target")]["mean"],
                    found[name.format(f"gap_{kind}")]["sem"],
                    found[f"trained/{kernel}/oracle_{kind}"]["mean"],
                )
                for found, name in metrics.values()
            ],
            float,
        ).reshape(-1, 3)
        means, errors, oracles = drawn.T.tolist()
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
        axis.plot(
            sizes, [found["mean"]] * len(sizes), "--", color=colour, linewidth=1.2, label=f"{KERNELS[kernel]}, CMANP"
        )
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
    drawing.save_numbers(path.with_suffix(".csv"), _COLUMNS, rows)
    return drawing.save(figure, path.with_suffix(".png"))


def _draw_curves(results: Sequence[Result], place: int, folder: Path, name: str, figure_name: str) -> Path:
    cells = study_of_blocks(_own(results, figure_name))
    if not cells:
        raise UserError(f"{figure_name} needs a result of neural_processes/analyses with study=blocks; there is none")
    figure, axes = drawing.new_figure(len(cells), len(curves.FUNCTIONS), height=2.3, sharex=True, sharey="col")
    rows = []
    for line, (model, result) in zip(axes, cells.items()):
        rows += curves.draw(line, result.examples, place, MODELS[model])
    _finish(figure, axes, f"Context in {curves.PLACES[place]} of training (preset {next(iter(cells.values())).preset})")
    drawing.save_numbers(folder / f"{name}.csv", ["model", "function", "x", "truth", "mean", "std"], rows)
    return drawing.save(figure, folder / f"{name}.png")


def _finish(figure: Figure, axes: list[list[Axes]], heading: str) -> None:
    for axis, function in zip(axes[0], curves.FUNCTIONS):
        axis.set_title(function.name, fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle(heading, fontsize=9.5)
