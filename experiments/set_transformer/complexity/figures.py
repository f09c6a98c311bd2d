"""Time and operations of blocks of the Set Transformer by the number of elements: quadratic or linear."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.set_transformer.complexity.tables import CONFIG, blocks_of, chosen_run, label_of, number

_PANELS = {"time": "milliseconds", "operations": "operations that the compiler counts, 10⁹"}
_COLOURS = {"sab": drawing.RED, "isab": drawing.BLUE, "pma": drawing.AMBER}
_LINES = {"forward": dict(linestyle="-", marker="o"), "gradient": dict(linestyle="--", marker="s")}
_SLOPES = {1: "linear", 2: "quadratic"}


def complexity(results: Sequence[Result], folder: Path) -> Path:
    """The run with the published attention."""
    run = drawing.required(chosen_run(results), f"the figure needs a result of {CONFIG}")
    return _drawn(run, folder / "complexity.png")


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run."""
    (run,) = results
    return _drawn(run, folder / "figure.png")


def _drawn(run: Result, path: Path) -> Path:
    how = run.config["measurement"]
    figure, (axes,) = drawing.new_figure(1, len(_PANELS), width=4.2, height=3.8)
    rows, looks = [], []
    for axis, (quantity, title) in zip(axes, _PANELS.items()):
        for phase in how["phases"]:
            for block in blocks_of(run):
                found = {size: number(run, quantity, phase, block, size) for size in how["sizes"]}
                known = {size: cell.mean for size, cell in found.items() if cell.known}
                name = run.config["blocks"][block]["name"]
                look = dict(color=_COLOURS[name], label=f"{label_of(run, block)}, {phase}", markersize=3.5)
                look |= _LINES[phase]
                axis.plot(list(known), list(known.values()), **look)
                looks += [look] if axis is axes[0] else []
                rows += [(quantity, block, phase, size, mean) for size, mean in known.items()]
        axis.set(xscale="log", yscale="log", xlabel="elements of a set", title=title)
        _slopes(axis, how["sizes"])
        drawing.plain_ticks(axis.xaxis, how["sizes"])
        drawing.plain_ticks(axis.yaxis)
    drawing.legend_below(figure, looks)
    figure.suptitle(f"preset {run.preset}, {run.content['device']}", fontsize=9)
    return drawing.save(figure, path, ["quantity", "block", "phase", "elements", "ms or 10^9"], rows)


def _slopes(axis, sizes: Sequence[int]) -> None:
    """Thin lines of the slopes of a linear and a quadratic growth, from the middle of the panel's left side."""
    low, high = axis.get_ylim()
    start, left, right = (low * high) ** 0.5, sizes[0], sizes[-1]
    for slope, word in _SLOPES.items():
        end = min(right, left * (high / start) ** (1 / slope))
        top = start * (end / left) ** slope
        axis.plot([left, end], [start, top], color=drawing.GREY, linewidth=0.7)
        axis.annotate(word, (end, top), color=drawing.GREY, fontsize=7.5, ha="right", va="bottom")
    axis.set_ylim(low, high)


FIGURES = {"set_transformer/complexity": complexity}
