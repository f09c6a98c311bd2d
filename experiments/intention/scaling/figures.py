"""Figure 3 of the Intention paper: the latent size that least squares takes, by dimension. And the view of one run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.intention.scaling import tables
from experiments.intention.scaling.tables import STATISTICS, Search, dimension, size, smallest_size
from experiments.regression.figures import colour
from experiments.regression.labels import label, model_of
from kvq_jax.models import WEIGHT_REGRESSORS

_MARKS = dict(zip(WEIGHT_REGRESSORS, "os^D"))
_NUMBERS = ("mean", "sem", "median", "n")


def figure3(results: Sequence[Result], folder: Path) -> Path:
    """The smallest size that reaches the threshold by dimension, for the mean and for the median error (Section 2).

    An open mark with an arrow: no size up to this one, the largest tried, was enough.
    """
    found = drawing.required(tables.searches(results), "Figure 3 needs results of intention/scaling")
    threshold, preset = tables.threshold_of(results), tables.own_results(results)[0].preset
    figure, axes = drawing.new_figure(1, len(STATISTICS), width=3.8, height=3.4, sharey=True)
    for axis, statistic in zip(axes[0], STATISTICS):
        for place, model in enumerate(WEIGHT_REGRESSORS):
            of_model = {d: search for (name, d), search in found.items() if name == model}
            _draw_sizes(axis, model, of_model, threshold, statistic, shift=0.12 * (place - 1.5))
        axis.set_yscale("log", base=2)
        axis.set_ylim(1.5, 2.5 * max(max(search) for search in found.values()))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_xticks(sorted({d for _, d in found}))
        axis.set(xlabel="dimension d", title=f"{statistic} MSE ≤ {threshold:g}")
    axes[0][0].set_ylabel("smallest size s that reaches it")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.suptitle(f"Size that least squares takes ({drawing.EFFORTS[preset]}; open: not reached)", fontsize=9.5)
    smallest = {
        which: [smallest_size(of, threshold, statistic) for statistic in STATISTICS] for which, of in found.items()
    }
    rows = [
        (preset, threshold, model, d, tried, *(error[number] for number in _NUMBERS))
        + tuple(best == tried for best in smallest[model, d])
        for (model, d), search in found.items()
        for tried, error in search.items()
    ]
    columns = ["preset", "threshold", "model", "dimension", "size", *_NUMBERS]
    columns += [f"smallest_by_{statistic}" for statistic in STATISTICS]
    return drawing.save(figure, folder / "figure3.png", columns, rows)


def run_figure(result: Result, folder: Path) -> Path:
    """One run: predicted against true weights, every coordinate of the example tasks."""
    model, arrays = model_of(result), result.examples
    figure, ((axis,),) = drawing.new_figure(1, 1, width=3.6, height=3.6)
    drawing.draw_against(axis, arrays["weights"], arrays["trained/prediction"], color=colour(model), markersize=4)
    axis.set(xlabel="true weight", ylabel="predicted weight", aspect="equal")
    title = f"{label(model)}, d = {dimension(result)}, size {size(result)}, {drawing.EFFORTS[result.preset]}"
    axis.set_title(title, fontsize=8)
    return drawing.save(figure, folder / "figure.png")


def _draw_sizes(axis, model: str, of_model: dict[int, Search], threshold: float, statistic: str, shift: float) -> None:
    """One line over the dimensions, `shift` to the side, so that equal sizes of several models stay visible."""
    look = dict(color=colour(model), marker=_MARKS[model], markersize=5)
    sizes = {d: smallest_size(search, threshold, statistic) for d, search in of_model.items()}
    tops = {d: smallest or max(of_model[d]) for d, smallest in sizes.items()}
    x = np.array(list(tops)) + shift
    axis.plot(x, list(tops.values()), color=colour(model), linewidth=1.0, alpha=0.6)
    axis.plot([], [], **look, label=WEIGHT_REGRESSORS[model].label)
    for position, (d, top) in zip(x, tops.items()):
        reached = sizes[d] is not None
        axis.plot([position], [top], **look, fillstyle="full" if reached else "none")
        if not reached:
            arrow = dict(arrowstyle="->", color=colour(model), shrinkA=4, shrinkB=0)
            axis.annotate("", (position, top * 1.8), (position, top), arrowprops=arrow)


FIGURES = {"intention/figure3": figure3}
