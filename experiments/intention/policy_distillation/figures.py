"""Figures 8 and 9 of the Intention paper: policy distillation. And the view of one run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import drawing
from experiments.harness.results import Result, spread
from experiments.intention.closed_form import answers, chosen, model_name, own_form, short
from experiments.regression.figures import colour
from experiments.regression.labels import METHODS, label, model_of

_NAME = "policy_distillation"
_SHOWN, _ZOOM = 4, 0.6  # environments in Figure 8, and half the width of its lower panels
# The target lies above a prediction that hits it.
_TARGET = dict(marker="+", color=drawing.INK, markeredgewidth=0.8, linestyle="", zorder=6)
_FLOOR = 1e-9  # of the errors that Figure 9 draws: below it rounding has its say

Examples = Mapping[str, Mapping[str, np.ndarray]]  # model -> what examples.npz holds


def figure8(results: Sequence[Result], folder: Path) -> Path:
    """Four environments: observations, reward, target and every model's prediction; below, the target's surroundings.

    The grey rings are a Gaussian of standard deviation 1 around the target, of which the paper says neither width nor
    use: the models are given squared distances. The dot of an observation is the larger, the greater the Gaussian is
    there.
    """
    found = drawing.required(chosen(results, _NAME), f"Figure 8 needs results of intention/{_NAME}")
    examples = {model: result.examples for model, result in found.items()}
    shown = min(_SHOWN, len(next(iter(examples.values()))["target"]))
    figure, axes = drawing.new_figure(2, shown, width=2.3, height=2.35)
    for environment in range(shown):
        _draw_environment(axes[0][environment], examples, environment)
        _draw_surroundings(axes[1][environment], examples, environment)
        axes[0][environment].set_title(f"environment {environment + 1}", fontsize=9)
    axes[0][0].set_ylabel("all", fontsize=9)
    axes[1][0].set_ylabel(f"target ± {_ZOOM}", fontsize=9)
    _legend(figure, found)
    first = next(iter(found.values()))
    effort = drawing.EFFORTS[first.preset]
    figure.suptitle(
        f"Where is the target? {own_form(first).capitalize()} ({effort}); rings: a Gaussian of deviation 1 around it",
        fontsize=10,
    )
    rows = [
        (model, number, *coordinates)
        for model, arrays in examples.items()
        for number, coordinates in enumerate(np.hstack([arrays["target"], arrays["trained/prediction"]]).tolist(), 1)
        if number <= shown
    ]
    columns = ["model", "environment", "target_x", "target_y", "prediction_x", "prediction_y"]
    return drawing.save(figure, folder / "figure8.png", columns, rows)


def figure9(results: Sequence[Result], folder: Path) -> Path:
    """The distribution of every model's error over environments, its mean written above (Section 5.3).

    Means and medians are those of result.json; the violins show the environments of examples.npz, which are others.
    """
    found = drawing.required(chosen(results, _NAME), f"Figure 9 needs results of intention/{_NAME}")
    first = next(iter(found.values()))
    figure, ((axis,),) = drawing.new_figure(1, 1, width=6.6, height=3.6)
    bodies = [
        (label(model), colour(model), errors(result, "trained/prediction"), result.metrics["trained/mse"])
        for model, result in found.items()
    ]
    given = "linearised_intention"
    bodies.append(("Intention,\nuntrained,\nlinearised", drawing.GREY, errors(first, given), answers(first)[given]))
    for place, (_, shade, values, summary) in enumerate(bodies):
        _draw_violin(axis, place, shade, values)
        if (middle := summary["median"]) is not None:
            axis.plot([place - 0.25, place + 0.25], [max(middle, _FLOOR)] * 2, color=drawing.INK, linewidth=1.2)
        axis.text(place, 30, short(summary["mean"]), ha="center", va="bottom", fontsize=8)
    axis.axhline(1.0, color=drawing.GREY, linewidth=0.8, linestyle=":")
    axis.text(len(bodies) - 0.45, 1.15, "predicting 0", ha="right", va="bottom", fontsize=7, color=drawing.GREY)
    axis.set_yscale("log")
    axis.set_ylim(_FLOOR / 2, 100)
    axis.set_xticks(range(len(bodies)), [name for name, *_ in bodies], fontsize=8)
    axis.grid(False, axis="x")
    axis.set_ylabel("squared error of a coordinate")
    exact = short(answers(first)["trilateration"]["mean"])
    axis.set_title(
        f"Policy distillation, {own_form(first)}, {drawing.EFFORTS[first.preset]}\n"
        f"median (line) and mean (number) over {spread(found.values(), 'trained/mse', 'environments')},\n"
        f"distribution over {len(bodies[0][2])} others; trilateration, the exact answer, has a mean of {exact}",
        fontsize=9,
    )
    numbers = ["mean", "sem", "median", "n"]
    summaries = {name.replace("\n", " "): summary for name, _, _, summary in bodies}
    summaries[METHODS["trilateration"]] = answers(first)["trilateration"]
    rows = [(name, *(summary[number] for number in numbers)) for name, summary in summaries.items()]
    return drawing.save(figure, folder / "figure9.png", ["predictions_of", *numbers], rows)


def run_figure(result: Result, folder: Path) -> Path:
    """One run: two environments, and predicted against true coordinates."""
    model, arrays = model_of(result), result.examples
    figure, axes = drawing.new_figure(1, 3, width=2.8, height=2.9)
    for environment, axis in zip(range(len(arrays["target"])), axes[0][:2]):
        _draw_environment(axis, {model: arrays}, environment)
        axis.set_title(f"environment {environment + 1}")
    axis = axes[0][2]
    drawing.draw_against(axis, arrays["target"], arrays["trained/prediction"], color=colour(model), markersize=2)
    axis.set(xlabel="true coordinate", ylabel="predicted", aspect="equal")
    figure.suptitle(f"{model_name(result)}, {drawing.EFFORTS[result.preset]}", fontsize=10)
    return drawing.save(figure, folder / "figure.png")


def errors(result: Result, predictions: str) -> np.ndarray:
    """[environments]: the squared error, over the two coordinates, of the `predictions` that examples.npz holds."""
    arrays = result.examples
    return np.mean((arrays[predictions].astype(float) - arrays["target"]) ** 2, -1)


def _draw_environment(axis: Axes, examples: Examples, environment: int) -> None:
    first = next(iter(examples.values()))
    target, places = first["target"][environment], first["places"][environment]
    half = max(2.2, 0.4 + np.abs(target).max(), 0.4 + np.abs(places).max())
    _draw_reward(axis, target, 2 * half)
    reward = np.exp(-first["distances"][environment] / 2)
    axis.scatter(*places.T, s=8 + 70 * reward, color=drawing.INK, linewidths=0, zorder=3)
    _draw_predictions(axis, examples, environment, size=11)
    axis.plot(*target, **_TARGET, markersize=13)
    axis.set(xlim=(-half, half), ylim=(-half, half), aspect="equal")


def _draw_surroundings(axis: Axes, examples: Examples, environment: int) -> None:
    x, y = next(iter(examples.values()))["target"][environment]
    _draw_reward(axis, np.array([x, y]), 2 * _ZOOM)
    _draw_predictions(axis, examples, environment, size=12)
    axis.plot(x, y, **_TARGET, markersize=14)
    predicted = {model: arrays["trained/prediction"][environment] for model, arrays in examples.items()}
    outside = [label(model) for model, place in predicted.items() if np.abs(place - (x, y)).max() > _ZOOM]
    if outside:
        axis.text(0.03, 0.03, "outside: " + ", ".join(outside), transform=axis.transAxes, fontsize=7)
    axis.set(xlim=(x - _ZOOM, x + _ZOOM), ylim=(y - _ZOOM, y + _ZOOM), aspect="equal")


def _draw_reward(axis: Axes, target: np.ndarray, reach: float) -> None:
    offsets = np.linspace(-reach, reach, 120)
    squares = offsets**2
    reward = np.exp(-(squares[:, None] + squares) / 2)
    look = dict(levels=np.linspace(0.1, 0.98, 9), colors=drawing.FAINT, linewidths=0.7)
    axis.contour(target[0] + offsets, target[1] + offsets, reward, **look)
    drawing.box(axis)


def _draw_predictions(axis: Axes, examples: Examples, environment: int, size: float) -> None:
    for model, arrays in reversed(examples.items()):  # Intention last, on top
        look = dict(color=colour(model), markersize=size, markeredgecolor="white", markeredgewidth=0.6)
        axis.plot(*arrays["trained/prediction"][environment], "*", **look, zorder=5, label=label(model))


def _draw_violin(axis: Axes, place: int, shade: str, values: np.ndarray) -> None:
    """The density of log10(values), of those that are finite, as a body of constant greatest width."""
    logarithms = np.log10(np.maximum(values[np.isfinite(values)], _FLOOR))
    if not len(logarithms):
        return
    grid = np.linspace(logarithms.min() - 0.3, logarithms.max() + 0.3, 200)
    width = max(1.06 * logarithms.std() * len(logarithms) ** -0.2, 1e-3)  # Scott's rule
    density = np.exp(-(((grid[:, None] - logarithms) / width) ** 2) / 2).sum(-1)
    half = 0.4 * density / density.max()
    axis.fill_betweenx(10**grid, place - half, place + half, color=shade, alpha=0.55, linewidth=0)


def _legend(figure, models) -> None:
    marks = [(label(model), colour(model), "*", 9) for model in models]
    marks += [("observation (larger: nearer)", drawing.INK, "o", 5), ("target", drawing.INK, "+", 9)]
    names = ("label", "color", "marker", "markersize")
    drawing.legend_below(figure, [dict(zip(names, mark), linestyle="") for mark in marks])


FIGURES = {"intention/figure8": figure8, "intention/figure9": figure9}
