"""Figure 3 of the Intention paper: the latent size that least squares takes, against its dimension. And the view of one run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.errors import UserError
from experiments.harness.results import Result, comparable, facts
from experiments.harness.tables import Cell, Table, measured, median

# Names of the models as the paper writes them, in its order.
MODELS = {"intention": "Intention", "attention": "Attention", "neural_process": "Neural Process", "mlp": "MLP"}
STATISTICS = ("mean", "median")  # of the error over tasks
_COLOURS = {"intention": drawing.RED, "attention": drawing.BLUE, "neural_process": drawing.GREEN, "mlp": drawing.VIOLET}
_MARKS = {"intention": "o", "attention": "s", "neural_process": "^", "mlp": "D"}

Search = dict[int, dict]  # size tried -> summary of the error over tasks


def searches(results: Sequence[Result]) -> dict[tuple[str, int], Search]:
    """(model, dimension) -> its search, sizes increasing: all of one preset, models in the paper's order."""
    own = _own(results)
    found = {(model, d): {} for model in MODELS for d in sorted({_dimension(result) for result in own})}
    for result in sorted(own, key=lambda result: result.config["model"]["latent"]):
        found[_place(result)][result.config["model"]["latent"]] = result.metrics["trained/mse"]
    return {which: search for which, search in found.items() if search}


def smallest_size(search: Search, threshold: float, statistic: str) -> int | None:
    """The smallest size tried whose error is at most `threshold`; None if none is."""
    return next(
        (s for s, error in search.items() if error[statistic] is not None and error[statistic] <= threshold), None
    )


def figure3(results: Sequence[Result], folder: Path) -> Path:
    """The smallest size that reaches the threshold against the dimension, by the mean and by the median error (Section 4).

    An open mark with an arrow: no size up to this one, the largest tried, was enough.
    """
    found = searches(results)
    if not found:
        raise UserError("Figure 3 needs results of intention/scaling; there are none")
    threshold, preset = _threshold(results), _own(results)[0].preset
    figure, axes = drawing.new_figure(1, len(STATISTICS), width=3.8, height=3.4, sharey=True)
    for axis, statistic in zip(axes[0], STATISTICS):
        for place, model in enumerate(MODELS):
            of_model = {d: search for (name, d), search in found.items() if name == model}
            _draw_sizes(axis, model, of_model, threshold, statistic, shift=0.12 * (place - 1.5))
        axis.set_yscale("log", base=2)
        axis.set_ylim(1.5, 2.5 * max(max(search) for search in found.values()))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_xticks(sorted({d for _, d in found}))
        axis.set_xlabel("dimension d")
        axis.set_title(f"{statistic} MSE ≤ {threshold:g}")
    axes[0][0].set_ylabel("smallest size s that reaches it")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(MODELS), fontsize=8)
    figure.suptitle(f"Size that least squares takes (preset {preset}; open: not reached)", fontsize=9.5)
    columns = [
        "preset",
        "threshold",
        "model",
        "dimension",
        "size",
        "mean",
        "sem",
        "median",
        "n",
        "smallest_by_mean",
        "smallest_by_median",
    ]
    rows = [
        (
            preset,
            threshold,
            model,
            d,
            size,
            *(error[what] for what in ("mean", "sem", "median", "n")),
            *(smallest_size(search, threshold, statistic) == size for statistic in STATISTICS),
        )
        for (model, d), search in found.items()
        for size, error in search.items()
    ]
    drawing.save_numbers(folder / "figure3.csv", columns, rows)
    return drawing.save(figure, folder / "figure3.png")


def figure3_table(results: Sequence[Result]) -> Table | None:
    """The smallest size for each model and dimension, by the mean error and by the median; None without results."""
    found = searches(results)
    if not found:
        return None
    threshold, dimensions = _threshold(results), sorted({d for _, d in found})
    rows = [
        (
            f"{name}, by {statistic}",
            [_size_text(found[model, d], threshold, statistic) if (model, d) in found else Cell() for d in dimensions],
        )
        for statistic in STATISTICS
        for model, name in MODELS.items()
    ]
    rows.append(("the paper's Figure 3", ["(curve)"] * len(dimensions)))
    first, told = _own(results)[0], facts(_own(results), "trained/mse")
    caption = (
        f"Preset {told['preset']}, {first.content['steps']} steps: smallest size tried, doubling from 2, whose squared "
        f"error of a weight is at most {threshold:g} (variance of a weight: 1), by the mean or the median over tasks; > s: not "
        "reached by any size up to s. Least squares itself is exact. The paper prints no numbers and no threshold for this figure."
    )
    columns = ["model", *(f"d = {d}" for d in dimensions)]
    return Table("Size that least squares takes, by dimension", columns, rows, caption, facts=told)


def run_table(results: Sequence[Result]) -> Table:
    """One run: its error beside that of least squares itself."""
    (result,) = results
    names = {
        "trained/mse": MODELS[result.config["model"]["name"]],
        "trained/least_squares_mse": "least squares (oracle)",
    }
    rows = [
        (name, [measured(result.metrics[metric]), median(result.metrics[metric])]) for metric, name in names.items()
    ]
    threshold = result.config["evaluation"]["threshold"]
    caption = (
        f"Squared error of a weight (variance 1) over {result.metrics['trained/mse']['n']} tasks; preset {result.preset}. The search "
        f"for a size ends at a mean of {threshold:g}."
    )
    title = f"Least squares, d = {_dimension(result)}, size {result.config['model']['latent']}"
    return Table(title, ["weights from", "mean", "median"], rows, caption, facts=facts(results, "trained/mse"))


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run: predicted against true weights, every coordinate of the example tasks."""
    (result,) = results
    model, arrays = result.config["model"]["name"], result.examples
    figure, ((axis,),) = drawing.new_figure(1, 1, width=3.6, height=3.6)
    axis.axline((0, 0), slope=1, color=drawing.INK, linewidth=0.8)
    axis.plot(arrays["weights"].ravel(), arrays["trained/prediction"].ravel(), ".", color=_COLOURS[model], markersize=4)
    axis.set(xlabel="true weight", ylabel="predicted weight", aspect="equal")
    axis.set_title(
        f"{MODELS[model]}, d = {_dimension(result)}, size {result.config['model']['latent']}, preset {result.preset}",
        fontsize=8,
    )
    return drawing.save(figure, folder / "figure.png")


def _own(results: Sequence[Result]) -> list[Result]:
    found = comparable(results, "intention/scaling", lambda result: (*_place(result), result.config["model"]["latent"]))
    return list(found.values())


def _place(result: Result) -> tuple[str, int]:
    return result.config["model"]["name"], _dimension(result)


def _dimension(result: Result) -> int:
    return result.config["task"]["dimension"]


def _threshold(results: Sequence[Result]) -> float:
    """The threshold of the search. Raises UserError where the results have several: their searches do not compare."""
    thresholds = {result.config["evaluation"]["threshold"] for result in _own(results)}
    if len(thresholds) > 1:
        raise UserError(
            f"results of intention/scaling have several thresholds, {sorted(thresholds)}: keep one with --results"
        )
    return thresholds.pop()


def _size_text(search: Search, threshold: float, statistic: str) -> str:
    size = smallest_size(search, threshold, statistic)
    return f"> {max(search)}" if size is None else str(size)


def _draw_sizes(axis, model: str, of_model: dict[int, Search], threshold: float, statistic: str, shift: float) -> None:
    """One line over the dimensions, drawn `shift` to the side of them so that equal sizes of several models stay visible."""
    look = dict(color=_COLOURS[model], marker=_MARKS[model], markersize=5)
    sizes = {d: smallest_size(search, threshold, statistic) for d, search in of_model.items()}
    tops = {d: size or max(of_model[d]) for d, size in sizes.items()}
    x = np.array(list(tops)) + shift
    axis.plot(x, list(tops.values()), color=_COLOURS[model], linewidth=1.0, alpha=0.6)
    axis.plot([], [], **look, label=MODELS[model])
    for position, (d, top) in zip(x, tops.items()):
        reached = sizes[d] is not None
        axis.plot([position], [top], **look, fillstyle="full" if reached else "none")
        if not reached:
            arrow = dict(arrowstyle="->", color=_COLOURS[model], shrinkA=4, shrinkB=0)
            axis.annotate("", (position, top * 1.8), (position, top), arrowprops=arrow)
