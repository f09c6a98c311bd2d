"""Figures of the Intention paper, drawn from results alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import drawing
from experiments.harness.errors import UserError
from experiments.harness.results import Result
from experiments.intention import few_shot_classification_figures, kabsch_figures, policy_figures, scaling, untrained
from experiments.intention.tables import MODELS, PHASES, few_shot_results, mse_by_count, task_name

_COLOURS = {"intention": drawing.RED, "attention": drawing.BLUE, "neural_process": drawing.GREEN, "maml": drawing.AMBER}
_LINES = {"trained": "-", "untrained": "--"}


def figure6(results: Sequence[Result], folder: Path) -> Path:
    """Sine curves: the truth, the context and every model's prediction, by number of observations (Section 5.1)."""
    chosen = _required(results, "sine", "Figure 6")
    examples = {model: result.examples for model, result in chosen.items()}
    first = next(iter(examples.values()))
    figure, axes = drawing.new_figure(1, len(first["counts"]), sharex=True, sharey=True)
    for column, count in enumerate(first["counts"]):
        axis = axes[0][column]
        for model, arrays in examples.items():
            for phase in PHASES:
                axis.plot(
                    arrays["target_x"][0, :, 0], arrays[f"{phase}/prediction"][0, column, :, 0], **_line(model, phase)
                )
        _draw_curve(axis, first, count)
        axis.set_title(f"{count} observations")
        axis.set_xlabel("x")
    axes[0][0].set_ylabel("y")
    _legend(figure, chosen)
    figure.suptitle(_heading("Sine regression: trained solid, untrained dashed", chosen))
    rows = [
        (model, phase, int(count), float(x), float(y), float(prediction))
        for model, arrays in examples.items()
        for phase in PHASES
        for column, count in enumerate(arrays["counts"])
        for x, y, prediction in zip(
            arrays["target_x"][0, :, 0], arrays["target_y"][0, :, 0], arrays[f"{phase}/prediction"][0, column, :, 0]
        )
    ]
    drawing.save_numbers(folder / "figure6.csv", ["model", "phase", "observations", "x", "y", "prediction"], rows)
    return drawing.save(figure, folder / "figure6.png")


def figure7(results: Sequence[Result], folder: Path) -> Path:
    """MSE over the number of observations on sine curves and on pixels, trained and untrained (Section 5.1)."""
    panels = {name: chosen for name in ("sine", "pixels") if (chosen := few_shot_results(results, name))}
    if not panels:
        raise UserError("Figure 7 needs results of intention/sine or intention/pixels; there are none")
    figure, axes = drawing.new_figure(1, len(panels), width=4.4, height=3.6)
    rows = []
    for axis, chosen in zip(axes[0], panels.values()):
        for model, result in chosen.items():
            rows += _draw_errors(axis, model, result)
        axis.set_title(_heading(task_name(result), chosen))
        missing = [MODELS[model] for model in MODELS if model not in chosen]
        if missing:
            axis.text(
                0.98, 0.98, "missing: " + ", ".join(missing), transform=axis.transAxes, ha="right", va="top", fontsize=7
            )
    _legend(figure, MODELS)
    columns = ["task", "preset", "model", "phase", "observations", "mean", "sem", "median", "n"]
    drawing.save_numbers(folder / "figure7.csv", columns, rows)
    return drawing.save(figure, folder / "figure7.png")


def figure13(results: Sequence[Result], folder: Path) -> Path:
    """Completed digits: for each number of observed pixels, the context and every model's image (Appendix 4.2)."""
    chosen = _required(results, "pixels", "Figure 13")
    examples = {model: result.examples for model, result in chosen.items()}
    first = next(iter(examples.values()))
    counts, tasks = first["counts"], min(2, len(first["target_y"]))
    side = int(np.sqrt(first["target_y"].shape[1]))
    names = ["observed", *(f"{MODELS[model]}\n{phase}" for model in examples for phase in PHASES), "truth"]
    figure, axes = drawing.new_figure(tasks * len(counts), len(names), width=0.95, height=0.95)
    for task in range(tasks):
        for index, count in enumerate(counts):
            predictions = [
                arrays[f"{phase}/prediction"][task, index] for arrays in examples.values() for phase in PHASES
            ]
            line = axes[task * len(counts) + index]
            _draw_image(line[0], _observed_image(first, task, count, side))
            for axis, image in zip(line[1:], [*predictions, first["target_y"][task]]):
                _draw_image(axis, image.reshape(side, side))
            line[0].set_ylabel(f"{count}", rotation=0, ha="right", va="center")
    for axis, name in zip(axes[0], names):
        axis.set_title(name, fontsize=6.5)
    figure.suptitle(
        _heading(f"{task_name(next(iter(chosen.values())))} from a number of observed pixels", chosen), fontsize=9
    )
    rows = [
        (
            model,
            phase,
            task,
            int(count),
            float(np.mean((arrays[f"{phase}/prediction"][task, index] - arrays["target_y"][task]) ** 2)),
        )
        for model, arrays in examples.items()
        for phase in PHASES
        for task in range(tasks)
        for index, count in enumerate(counts)
    ]
    drawing.save_numbers(folder / "figure13.csv", ["model", "phase", "image", "observations", "mse"], rows)
    return drawing.save(figure, folder / "figure13.png")


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run at a glance: its error against the number of observations, and one example for each of a few numbers."""
    (result,) = results
    model, arrays = result.config["model"]["name"], result.examples
    counts = arrays["counts"]
    figure, axes = drawing.new_figure(1, 1 + len(counts), height=3.0)
    _draw_errors(axes[0][0], model, result)
    axes[0][0].set_title(f"{MODELS[model]}, preset {result.preset}")
    axes[0][0].legend()
    for index, (axis, count) in enumerate(zip(axes[0][1:], counts)):
        if result.config["data"] is None:
            for phase in (phase for phase in PHASES if mse_by_count(result, phase)):
                axis.plot(
                    arrays["target_x"][0, :, 0], arrays[f"{phase}/prediction"][0, index, :, 0], **_line(model, phase)
                )
            _draw_curve(axis, arrays, count)
        else:
            side = int(np.sqrt(arrays["target_y"].shape[1]))
            images = [arrays["target_y"][0], arrays["trained/prediction"][0, index]]
            observed = _observed_image(arrays, 0, count, side)
            _draw_image(axis, np.concatenate([observed, *(image.reshape(side, side) for image in images)], 1))
            axis.set_xlabel("observed, truth, completed")
        axis.set_title(f"{count} observations")
    return drawing.save(figure, folder / "figure.png")


FIGURES = {
    "figure3": scaling.figure3,
    "figure4": untrained.figure4,
    "figure5": untrained.figure5,
    "figure6": figure6,
    "figure7": figure7,
    "figure8": policy_figures.figure8,
    "figure9": policy_figures.figure9,
    "figure10": kabsch_figures.figure10,
    "figure11": kabsch_figures.figure11,
    "figure13": figure13,
    "figure14": few_shot_classification_figures.figure14,
    "figure15": untrained.figure15,
}


def _required(results: Sequence[Result], experiment: str, figure: str) -> dict[str, Result]:
    chosen = few_shot_results(results, experiment)
    if not chosen:
        raise UserError(f"{figure} needs results of intention/{experiment}; there are none")
    return chosen


def _heading(text: str, chosen: Mapping[str, Result]) -> str:
    return f"{text} (preset {next(iter(chosen.values())).preset})"


def _line(model: str, phase: str) -> dict:
    return {
        "color": _COLOURS[model],
        "linestyle": _LINES[phase],
        "linewidth": 1.6 if phase == "trained" else 1.0,
        "label": phase,
    }


def _draw_errors(axis: Axes, model: str, result: Result) -> list[tuple]:
    """Draws mean MSE with its standard error against observations; returns the numbers drawn."""
    rows = []
    for phase in PHASES:
        curve = mse_by_count(result, phase)
        if not curve:
            continue
        mean, sem = (
            np.array([s[what] if s[what] is not None else np.nan for s in curve.values()]) for what in ("mean", "sem")
        )
        axis.plot(list(curve), mean, **_line(model, phase))
        axis.fill_between(
            list(curve), np.maximum(mean - sem, mean / 2), mean + sem, color=_COLOURS[model], alpha=0.15, linewidth=0
        )
        for count, summary in curve.items():
            numbers = [summary[what] for what in ("mean", "sem", "median", "n")]
            rows.append((task_name(result), result.preset, model, phase, count, *numbers))
    axis.set_yscale("log")
    if max(curve, default=1) > 100:
        axis.set_xscale("log")
    axis.set_xlabel("observations")
    axis.set_ylabel("mean squared error")
    return rows


def _draw_curve(axis: Axes, arrays: Mapping[str, np.ndarray], count: int) -> None:
    """The true curve of the first example task and its first `count` observations."""
    x, y = arrays["target_x"][0, :, 0], arrays["target_y"][0, :, 0]
    axis.plot(x, y, color=drawing.INK, linewidth=1.0, zorder=3)
    axis.plot(
        arrays["context_x"][0, :count, 0],
        arrays["context_y"][0, :count, 0],
        "o",
        color=drawing.INK,
        markersize=3.5,
        zorder=4,
    )
    margin = 1.0 + 0.5 * np.abs(y).max()
    axis.set_ylim(y.min() - margin, y.max() + margin)


def _draw_image(axis: Axes, image: np.ndarray) -> None:
    """A grey image without ticks; pixels that are NaN are drawn in blue, the mark of the unobserved."""
    shades = np.repeat(np.clip(image, 0, 1)[..., None], 3, -1)
    shades[np.isnan(image)] = (0.12, 0.28, 0.55)
    axis.imshow(shades, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.grid(False)


def _observed_image(arrays: Mapping[str, np.ndarray], task: int, count: int, side: int) -> np.ndarray:
    """[side, side] intensities of the first `count` context pixels, NaN elsewhere."""
    image = np.full((side, side), np.nan)
    row, column = np.rint((arrays["context_x"][task, :count].T + 1) * (side - 1) / 2).astype(int)
    image[row, column] = arrays["context_y"][task, :count, 0]
    return image


def _legend(figure, models) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_COLOURS[model], label=MODELS[model]) for model in models]
    handles += [Line2D([], [], color=drawing.INK, linestyle=_LINES[phase], label=phase) for phase in PHASES]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
