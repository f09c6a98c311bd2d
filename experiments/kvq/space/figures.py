"""The picture of KVQ space, from a result of kvq/space."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result, comparable

EXPERIMENT = "kvq/space"
CONFIGS = (EXPERIMENT,)
_COLUMNS = 6


def space(results: Sequence[Result], folder: Path) -> Path:
    """What every operator predicts, untrained, from one small context."""
    found = comparable(results, EXPERIMENT, lambda result: EXPERIMENT)
    drawing.required(found, f"The picture of KVQ space needs a result of {EXPERIMENT}")
    return _draw(found[EXPERIMENT], folder, "space")


def run_figure(result: Result, folder: Path) -> Path:
    """The same of one run."""
    return _draw(result, folder, "figure")


def _draw(result: Result, folder: Path, name: str) -> Path:
    """A panel for each operator. Squares are the context as labels, which some operators take, at -1 and 1."""
    arrays, ops = result.examples, [metric.split("/")[0] for metric in result.metrics]
    figure, axes = drawing.new_figure(
        -(-len(ops) // _COLUMNS), _COLUMNS, width=2.5, height=2.0, sharex=True, sharey=True
    )
    rows = []
    for axis, op in zip([axis for line in axes for axis in line], ops):
        labels, prediction = op in result.content["facts"]["labels"], arrays[f"{op}/prediction"]
        axis.plot(arrays["grid"], prediction, color=drawing.RED)
        values, marker = (arrays["sign"], "s") if labels else (arrays["y"], "o")
        axis.plot(arrays["x"], values, marker, color=drawing.INK, markersize=4)
        axis.set_title(op.replace("_", " "), fontsize=9)
        rows += [(op, float(at), float(value)) for at, value in zip(arrays["grid"], prediction)]
    drawing.hide_after(len(ops), axes)
    for line in axes:
        line[0].set_ylabel("value")
    for axis in (axis for line in zip(*axes) for axis in [[axis for axis in line if axis.get_visible()][-1]]):
        axis.set_xlabel("query")
    dots = dict(color=drawing.INK, linestyle="", markersize=4)
    looks = [dict(marker="o", label="context", **dots), dict(marker="s", label="the context as labels", **dots)]
    drawing.legend_below(figure, [dict(color=drawing.RED, label="prediction"), *looks])
    figure.suptitle("One context, every operator of KVQ space, untrained")
    return drawing.save(figure, folder / f"{name}.png", ["op", "x", "prediction"], rows)


FIGURES = {"kvq/space": space}
