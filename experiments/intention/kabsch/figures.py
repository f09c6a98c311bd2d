"""Figures 10 and 11 of the Intention paper: the generalised Kabsch task. And the view of one run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import drawing
from experiments.harness.results import Result, spread
from experiments.intention.closed_form import answers, chosen, model_name, of_one_cloud, own_form, short
from experiments.regression.figures import colour
from experiments.regression.labels import METHODS, label, model_of

_LINES = {"umeyama": ":", "affine": "--"}
_COLUMNS = 4  # of Figure 11


def figure10(results: Sequence[Result], folder: Path) -> Path:
    """Validation error over training; beside it the mean errors of models and oracles after it (Section 5.4).

    The curves are measured on the validation tasks. The numbers, and the dots at their heights, are the means of the
    evaluation, over more and other tasks.
    """
    found = drawing.required(chosen(results, "kabsch"), "Figure 10 needs results of intention/kabsch")
    first = next(iter(found.values()))
    figure, ((axis,),) = drawing.new_figure(1, 1, width=6.4, height=3.9)
    labels = _draw_errors(axis, found)
    axis.set_xlim(0, first.content["steps"])
    for mean, _, shade in labels:
        axis.plot(first.content["steps"], mean or math.nan, "o", color=shade, markersize=4, clip_on=False, zorder=5)
    _write_beside(axis, labels)
    validated = first.config["evaluation"]["validation_batches"] * first.config["train"]["batch_size"]
    noise = first.config["task"]["noise_std"]
    task = f"{first.config['task']['pairs']} pairs with noise {noise:g}"
    measured = f"dots and numbers: mean of {spread(found.values(), 'trained/mse', 'other tasks')}"
    figure.suptitle(
        f"Generalised Kabsch, {own_form(first)}, {drawing.EFFORTS[first.preset]}, {task}\n"
        f"curves: {validated} validation tasks; {measured}",
        fontsize=9,
    )
    rows = [
        (model, step, loss) for model, result in found.items() for step, loss in result.content["validation_losses"]
    ]
    ends = [(result.content["steps"], result.metrics["trained/mse"]["mean"]) for result in found.values()]
    rows += [(f"{model}, evaluation", *end) for model, end in zip(found, ends)]
    rows += [(METHODS[method], "", summary["mean"]) for method, summary in answers(first).items()]
    return drawing.save(figure, folder / "figure10.png", ["predictions_of", "step", "mse"], rows)


def figure11(results: Sequence[Result], folder: Path) -> Path:
    """A point cloud, its image under an unknown map, the observed pairs, and the image that each model infers.

    The first row is the paper's, Intention at its end; then the other models, the truth in grey behind all of them. Of
    the maps that examples.npz holds it is the one that turns the cloud furthest.
    """
    found = drawing.required(of_one_cloud(results, "kabsch"), "Figure 11 needs results of intention/kabsch")
    result = next(iter(found.values()))
    first = result.examples
    shown = _turned_furthest(first)
    cloud, target = first["cloud"], first["target"][shown]
    predicted = {model: result.examples["trained/prediction"][shown] for model, result in found.items()}
    errors = {model: float(np.mean((image - target) ** 2)) for model, image in predicted.items()}
    figure, axes = drawing.new_figure(-(-(3 + len(found)) // _COLUMNS), _COLUMNS, width=2.2, height=2.45)
    panels = [axis for line in axes for axis in line]
    _draw_cloud(panels[0], cloud, cloud, "point cloud")
    _draw_cloud(panels[1], cloud, target, "its image")
    pairs = first["context_x"][shown], first["context_y"][shown]
    _draw_pairs(panels[2], *pairs)
    for axis, (model, image) in zip(panels[3:], predicted.items()):
        axis.plot(*target.T[:2], ".", color=drawing.FAINT, markersize=2.0)
        _draw_cloud(axis, cloud, image, f"{label(model)}, MSE {errors[model]:.1e}")
        axis.title.set_color(colour(model))
    images = np.concatenate([target, *predicted.values()])
    for axis, points in zip(panels, (cloud, images, np.concatenate(pairs), *[images] * len(found))):
        _frame(axis, points)
    drawing.hide_after(3 + len(found), axes)
    figure.suptitle(
        f"From {len(pairs[0])} pairs to a whole map, {own_form(result)} ({drawing.EFFORTS[result.preset]})\n"
        "pairs: a point (open) and its image (full); grey: the true image, behind each model's",
        fontsize=9,
    )
    return drawing.save(figure, folder / "figure11.png", ["model", "mse_of_the_cloud"], errors.items())


def run_figure(result: Result, folder: Path) -> Path:
    """One run: its error over training, and one point cloud."""
    model, arrays = model_of(result), result.examples
    figure, ((errors, *clouds),) = drawing.new_figure(1, 3, width=2.9, height=3.0)
    _draw_errors(errors, {model: result})
    errors.set_title(f"{model_name(result)}, {drawing.EFFORTS[result.preset]}")
    errors.legend(fontsize=7)
    shown = _turned_furthest(arrays)
    images = {"truth": arrays["target"][shown], "prediction": arrays["trained/prediction"][shown]}
    for axis, (title, image) in zip(clouds, images.items()):
        _draw_cloud(axis, arrays["cloud"], image, title)
        _frame(axis, np.concatenate([*images.values()]))
    return drawing.save(figure, folder / "figure.png")


Label = tuple[float | None, str, str]  # a mean error, of what, and its colour


def _draw_errors(axis: Axes, found: Mapping[str, Result]) -> list[Label]:
    """Draws the models' validation losses and the methods' errors; returns the mean errors of the evaluation."""
    labels = []
    for model, result in found.items():
        axis.plot(*zip(*result.content["validation_losses"]), color=colour(model), label=label(model))
        labels.append((result.metrics["trained/mse"]["mean"], label(model), colour(model)))
    for method, summary in answers(next(iter(found.values()))).items():
        if summary["mean"] is not None:
            axis.axhline(summary["mean"], color=drawing.INK, linewidth=0.9, linestyle=_LINES[method], label=method)
        labels.append((summary["mean"], METHODS[method], drawing.INK))
    axis.set(yscale="log", xlabel="training steps", ylabel="mean squared error")
    return labels


def _write_beside(axis: Axes, labels: Sequence[Label]) -> None:
    """Each number beside its height on a logarithmic axis, from above, moved down where it would cover the one above.

    An error of None, which is not finite, is above all others.
    """
    low, high = np.log10(axis.get_ylim())
    room, gap = high - low, 0.062
    place = 1.1
    labels = [(math.inf if mean is None else mean, f"{short(mean)}  {name}", shade) for mean, name, shade in labels]
    for mean, text, shade in sorted(labels, reverse=True):
        place = min((np.log10(mean) - low) / room, place - gap)
        axis.text(1.03, place, text, transform=axis.transAxes, color=shade, fontsize=8, va="center")


def _draw_cloud(axis: Axes, cloud: np.ndarray, where: np.ndarray, title: str) -> None:
    """The points at `where` [P, 2 or 3], seen along z, each in the colour of its x in `cloud`."""
    x = cloud[:, 0]
    axis.scatter(*where.T[:2], c=x, cmap="viridis", vmax=x.max() + 0.2 * np.ptp(x), s=3.0, linewidths=0, zorder=3)
    axis.set_title(title, fontsize=8.5)
    drawing.box(axis, aspect="equal")


def _turned_furthest(arrays: Mapping[str, np.ndarray]) -> int:
    """Which map of the examples leaves the cloud least correlated with itself."""
    images = arrays["target"] - arrays["target"].mean(1, keepdims=True)
    size = np.sqrt(np.sum(images**2, (1, 2)))
    return int(np.argmin(np.sum(images * arrays["cloud"], (1, 2)) / size))


def _draw_pairs(axis: Axes, points: np.ndarray, images: np.ndarray) -> None:
    """The observed points (open), their images (full), and arrows between them."""
    for start, end in zip(points[:, :2], images[:, :2]):
        arrow = dict(arrowstyle="->", color=drawing.GREY, linewidth=0.8, shrinkA=3, shrinkB=3)
        axis.annotate("", end, start, arrowprops=arrow)
        axis.plot(*start, "o", color=drawing.INK, fillstyle="none", markersize=4)
        axis.plot(*end, "o", color=drawing.INK, markersize=4)
    axis.set_title(f"{len(points)} observed pairs", fontsize=8.5)
    drawing.box(axis, aspect="equal")


def _frame(axis: Axes, points: np.ndarray) -> None:
    """Makes the axis show a square around the points that are finite."""
    points = points[np.isfinite(points).all(1), :2]
    low, high = points.min(0), points.max(0)
    centre, half = (low + high) / 2, 0.56 * (high - low).max()
    axis.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))


FIGURES = {"intention/figure10": figure10, "intention/figure11": figure11}
