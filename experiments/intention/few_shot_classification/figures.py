"""Figure 14 of the Intention paper: accuracy against the size of the latent space. And the view of one run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from experiments.harness import drawing
from experiments.harness.results import Result, spread
from experiments.intention.few_shot_classification import tables

CONFIGS = (tables.EXPERIMENT,)
_KERNELS = {tables.INTENTION: ("Intention", drawing.RED), tables.KERNEL: ("Intention, Gaussian kernel", drawing.VIOLET)}
_SHOWN_TARGETS = 10  # of each class
_RIGHT, _WRONG = drawing.GREEN, drawing.RED


def figure14(results: Sequence[Result], folder: Path) -> Path:
    """Accuracy of Intention, linear and with a Gaussian kernel, against the features of e_H, with 95 % intervals."""
    own = [
        result
        for result in results
        if result.name == tables.EXPERIMENT and tables.row_of(result) in _KERNELS and result.axes["latent"] != "base"
    ]
    own = list(tables.chosen(own, list(tables.ENCODER_NAMES)).values())
    drawing.required(own, f"Figure 14 needs results of {tables.EXPERIMENT} with latent=16 to latent=128")
    figure, ((axis,),) = drawing.new_figure(1, 1, width=5.4, height=4.0)
    rows = []
    for (row, (name, colour)), beside in zip(_KERNELS.items(), (0.97, 1.03)):  # error bars do not cover each other
        runs = sorted((result for result in own if tables.row_of(result) == row), key=_latent)
        cells = [tables.percent(result) for result in runs]
        numbers = [[_latent(run) for run in runs], [cell.mean for cell in cells], [cell.error for cell in cells]]
        sizes, *accuracies = numbers
        axis.errorbar(np.multiply(sizes, beside), *accuracies, fmt="o-", color=colour, capsize=3, label=name)
        rows += [(row[2], _latent(result), cell.mean, cell.error, result.preset) for result, cell in zip(runs, cells)]
    sizes = sorted({_latent(result) for result in own})
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, list(map(str, sizes)))
    told = spread(own, "trained/accuracy", "episodes")
    axis.set(xlabel="features of $e_H$", ylabel=f"accuracy, %: mean and 95 % interval\nover {told}")
    axis.legend()
    first = own[0]
    axis.set_title(
        f"{first.content['facts']['data']}\n{tables.encoder_name(first)}, {drawing.EFFORTS[first.preset]}", fontsize=9
    )
    columns = ["kernel", "latent", "accuracy_percent", "interval_95", "preset"]
    return drawing.save(figure, folder / "figure14.png", columns, rows)


def run_figure(result: Result, folder: Path) -> Path:
    """One run at a glance: its loss on validation classes, and an episode of test classes with its answers."""
    cell = tables.percent(result)
    figure, axes = drawing.new_figure(1, 2, width=4.6, height=3.4, width_ratios=(1, 2.4))
    curve, pictures = axes[0]
    steps, losses = zip(*result.content["validation_losses"]) if result.content["validation_losses"] else ((), ())
    curve.plot(steps, losses, ".-", color=drawing.INK)
    curve.set(xlabel="training steps", ylabel="loss", title="validation classes")
    _draw_episode(pictures, result.examples)
    scored = f"{cell.text()} % of test images right"
    figure.suptitle(
        f"{tables.row_name(tables.row_of(result))}, {drawing.EFFORTS[result.preset]}: {scored}", fontsize=10
    )
    figure.supxlabel(tables.described(result), fontsize=6.5)
    return drawing.save(figure, folder / "figure.png")


def _latent(result: Result) -> int:
    return int(result.axes["latent"])


def _draw_episode(axis: Axes, arrays: dict[str, np.ndarray]) -> None:
    """The first episode, a class in each row: its context, then some targets, in green frames where right."""
    context, target = (_rows(arrays[f"{part}_image"][0], arrays[f"{part}_label"][0]) for part in ("context", "target"))
    target, size, gap = target[:, :_SHOWN_TARGETS], context.shape[2], 0.8
    answers = _rows(arrays["trained/prediction"][0], arrays["target_label"][0])
    places = [*range(context.shape[1]), *(context.shape[1] + gap + number for number in range(target.shape[1]))]
    for label, images in enumerate(np.concatenate([context, target], 1)):
        for number, (place, image) in enumerate(zip(places, images)):
            image = np.repeat(image, 3, -1) if image.shape[-1] == 1 else image
            axis.imshow(image, extent=(place, place + 0.92, -label - 0.92, -label), interpolation="nearest", zorder=2)
            asked = number - context.shape[1]
            if asked >= 0:
                right = answers[label, asked] == label
                look = dict(fill=False, edgecolor=_RIGHT if right else _WRONG, linewidth=1.8, zorder=3)
                axis.add_patch(Rectangle((place, -label - 0.92), 0.92, 0.92, **look))
                if not right:
                    style = dict(color="white", backgroundcolor=_WRONG, fontsize=5, zorder=4)
                    axis.text(place + 0.06, -label - 0.3, answers[label, asked] + 1, **style)
        axis.text(-0.25, -label - 0.5, label + 1, ha="right", va="center", fontsize=8)
    axis.set(xlim=(-0.6, places[-1] + 1), ylim=(-len(context), 0.1), xticks=[], yticks=[], aspect="equal")
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_title(f"{context.shape[1]} images of each class, then some to classify ({size}x{size})", fontsize=8.5)


def _rows(values: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Values [way x count, ...] in a row for each label: [way, count, ...]."""
    return np.stack([values[label == one] for one in range(label.max() + 1)])


FIGURES = {"intention/figure14": figure14}
