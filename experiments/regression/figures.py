"""The figure of any run: its error, and its predictions beside the truth as curves, images or points."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.regression.labels import PHASES, by_count, label, model_of

LINES = {"trained": "-", "untrained": "--"}
_COLOURS = {
    "intention": drawing.RED,
    "attention": drawing.BLUE,
    "neural_process": drawing.GREEN,
    "maml": drawing.AMBER,
    "mlp": drawing.VIOLET,
}
# The look of what `draw_truth` draws.
SEEN = (
    dict(color=drawing.INK, linewidth=1.0, label="truth"),
    dict(color=drawing.INK, linestyle="", marker="o", markersize=3.5, label="observations"),
)
_ORACLE = dict(color=drawing.GREY, linestyle=":", linewidth=1.2, label="oracle")
_SHOWN = 3  # example tasks, where each has its own number of observations

Arrays = Mapping[str, np.ndarray]


def colour(model: str) -> str:
    """One colour for a model in all figures."""
    return _COLOURS[model] if model in _COLOURS else drawing.RED


def line(model: str, phase: str) -> dict:
    """The look of a model's line before and after training."""
    width = 1.6 if phase == "trained" else 1.0
    return {"color": colour(model), "linestyle": LINES[phase], "linewidth": width, "label": phase}


def run_figure(result: Result, folder: Path) -> Path:
    """One run: its error by the number of observations or over training, and a few examples."""
    model, arrays = model_of(result), result.examples
    draw, panels = _panels(result, arrays)
    figure, ((error, *axes),) = drawing.new_figure(1, 1 + len(panels), height=3.0)
    (draw_errors if "counts" in arrays else draw_losses)(error, model, result)
    error.set_title(f"{label(model)}, {drawing.EFFORTS[result.preset]}")
    error.legend(fontsize=8)
    for axis, (title, example) in zip(axes, panels):
        draw(axis, model, example)
        axis.set_title(title)
    if draw is _draw_curve:
        drawing.legend_below(figure, [*SEEN, *([_ORACLE] if "oracle" in arrays else [])])
    return drawing.save(figure, folder / "figure.png")


def draw_errors(axis: Axes, model: str, result: Result) -> None:
    """Mean squared error with its standard error against the number of observations."""
    counts = []
    for phase in PHASES:
        curve = by_count(result, phase)
        counts = list(curve) or counts
        numbers = [[of[what] if of[what] is not None else np.nan for of in curve.values()] for what in ("mean", "sem")]
        mean, sem = map(np.array, numbers)
        if curve:
            axis.plot(counts, mean, **line(model, phase))
            low = np.maximum(mean - sem, mean / 2)
            axis.fill_between(counts, low, mean + sem, color=colour(model), alpha=0.15, linewidth=0)
    axis.set(yscale="log", xlabel="observations", ylabel="mean squared error")
    if max(counts, default=1) > 100:
        axis.set_xscale("log")


def draw_losses(axis: Axes, model: str, result: Result) -> None:
    """The validation loss over training."""
    axis.plot(*zip(*result.content["validation_losses"]), color=colour(model), marker=".", label="validation")
    axis.set(xlabel="training steps", ylabel="loss")


def draw_truth(axis: Axes, example: Arrays) -> None:
    """A function of one variable: the targets as a line, and the observations."""
    order = np.argsort(example["target_x"][:, 0])
    x, y = example["target_x"][order, 0], example["target_y"][order, 0]
    axis.plot(x, y, **SEEN[0], zorder=3)
    axis.plot(example["context_x"][:, 0], example["context_y"][:, 0], **SEEN[1], zorder=4)
    margin = 1.0 + 0.5 * np.abs(y).max()
    axis.set_ylim(y.min() - margin, y.max() + margin)


def draw_image(axis: Axes, image: np.ndarray) -> None:
    """A grey image without ticks; pixels that are NaN, the unobserved ones, are blue."""
    shades = np.repeat(np.clip(image, 0, 1)[..., None], 3, -1)
    shades[np.isnan(image)] = (0.12, 0.28, 0.55)
    axis.imshow(shades, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.grid(False)


def example_of(arrays: Arrays, task: int, column: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of one example task, without absent points; of the column-th number of observations, if given."""

    def there(part):
        if part == "context" and column is not None:
            return slice(int(arrays["counts"][column]))
        return arrays[f"{part}_mask"][task] if f"{part}_mask" in arrays else slice(None)

    example = {}
    for name, array in arrays.items():
        part, _, kind = name.partition("_")
        if part in ("context", "target") and kind != "mask":
            example[name] = array[task][there(part)]
        elif "prediction" in name or part == "oracle":
            example[name] = (array[task] if column is None else array[task][column])[there("target")]
    return example


def observed_image(example: Arrays) -> np.ndarray:
    """[side, side] intensities of the observed pixels, NaN elsewhere."""
    side = image_side(example)
    image = np.full((side, side), np.nan)
    row, column = np.rint((example["context_x"].T + 1) * (side - 1) / 2).astype(int)
    image[row, column] = example["context_y"][:, 0]
    return image


def image_side(example: Arrays) -> int:
    """The height and width of the square image whose pixels are the targets."""
    return int(np.sqrt(len(example["target_y"])))


def _panels(result: Result, arrays: Arrays) -> tuple:
    """How to draw an example, and (title, example) of each panel."""
    counts = enumerate(arrays["counts"]) if "counts" in arrays else None
    image, curve = result.config["task"]["name"] == "pixels", arrays["target_x"].shape[2:] == (1,)
    if not (image or curve):
        if counts is None:
            return _draw_points, [(f"{len(arrays['target_y'])} examples", _all_points(arrays))]
        return _draw_points, [(f"{count} observations", _all_points(arrays, column)) for column, count in counts]
    draw = _draw_completion if image else _draw_curve
    if counts is None:
        shown = range(min(_SHOWN, len(arrays["target_y"])))
        return draw, [(f"example {task + 1}", example_of(arrays, task)) for task in shown]
    return draw, [(f"{count} observations", example_of(arrays, 0, column)) for column, count in counts]


def _draw_curve(axis: Axes, model: str, example: Arrays) -> None:
    """The first output as a function of one variable, with a band of two standard deviations of a distribution."""
    order = np.argsort(example["target_x"][:, 0])
    x = example["target_x"][order, 0]
    for phase in (phase for phase in PHASES if f"{phase}/prediction" in example):
        mean = example[f"{phase}/prediction"][order, 0]
        axis.plot(x, mean, **line(model, phase))
        if f"{phase}/prediction_std" in example and phase == "trained":
            band = 2 * example[f"{phase}/prediction_std"][order, 0]
            axis.fill_between(x, mean - band, mean + band, color=colour(model), alpha=0.15, linewidth=0)
    if "oracle" in example:
        axis.plot(x, example["oracle"][order, 0], **_ORACLE)
    draw_truth(axis, example)
    axis.set(xlabel="x", ylabel="y")


def _draw_completion(axis: Axes, model: str, example: Arrays) -> None:
    """An image: the pixels observed, all of them, and as the model completes it."""
    side = image_side(example)
    images = [example[name].reshape(side, side) for name in ("target_y", "trained/prediction")]
    draw_image(axis, np.concatenate([observed_image(example), *images], 1))
    axis.set_xlabel("observed, truth, completed")


def _all_points(arrays: Arrays, column: int | None = None) -> dict[str, np.ndarray]:
    """Targets of all example tasks, and what is predicted of them."""
    tasks = [example_of(arrays, task, column) for task in range(len(arrays["target_y"]))]
    return {name: np.concatenate([task[name].ravel() for task in tasks]) for name in ("target_y", "trained/prediction")}


def _draw_points(axis: Axes, model: str, example: Arrays) -> None:
    drawing.draw_against(axis, example["target_y"], example["trained/prediction"], color=colour(model), markersize=3)
    axis.set(xlabel="truth", ylabel="prediction")
