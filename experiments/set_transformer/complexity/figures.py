"""Time and operations of blocks by the number of elements, as in Figure 1 of the supplement of the Set Transformer."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.set_transformer.complexity.tables import CLOCKS, CONFIG, blocks_of, chosen_run, label_of, number

_PANELS = {"time": "{time}", "operations": "operations that the compiler counts, 10⁹"}
_COLOURS = {"sab": drawing.RED, "isab": drawing.BLUE, "pma": drawing.AMBER}
_LINES = {"forward": dict(linestyle="-", marker="o"), "gradient": dict(linestyle="--", marker="s")}
_SLOPES = {1: "linear", 2: "quadratic"}


def complexity(results: Sequence[Result], folder: Path) -> Path:
    """The run with the published attention."""
    run = drawing.required(chosen_run(results), f"the figure needs a result of {CONFIG}")
    return _drawn(run, folder / "complexity.png")


def run_figure(run: Result, folder: Path) -> Path:
    """One run."""
    return _drawn(run, folder / "figure.png")


def _drawn(run: Result, path: Path) -> Path:
    how = run.config["measurement"]
    figure, (axes,) = drawing.new_figure(1, len(_PANELS), width=4.2, height=3.8)
    rows, blocks = [], {block: _COLOURS[run.config["blocks"][block]["name"]] for block in blocks_of(run)}
    for axis, (quantity, title) in zip(axes, _PANELS.items()):
        for phase in how["phases"]:
            for block, colour in blocks.items():
                found = {size: number(run, quantity, phase, block, size) for size in how["sizes"]}
                known = {size: cell.mean for size, cell in found.items() if cell.known}
                axis.plot(list(known), list(known.values()), color=colour, markersize=3.5, **_LINES[phase])
                rows += [(quantity, block, phase, size, mean) for size, mean in known.items()]
        axis.set(xscale="log", yscale="log", xlabel="elements of a set", title=title.format(time=CLOCKS[how["clock"]]))
        _slopes(axis, how["sizes"])
        drawing.plain_ticks(axis.xaxis, how["sizes"])
        drawing.plain_ticks(axis.yaxis)
    looks = [dict(color=colour, label=label_of(run, block)) for block, colour in blocks.items()]
    looks += [dict(color=drawing.INK, label=phase, markersize=3.5, **_LINES[phase]) for phase in how["phases"]]
    drawing.legend_below(figure, looks)
    figure.suptitle(f"preset {run.preset}, {run.content['device']}", fontsize=9)
    return drawing.save(figure, path, ["quantity", "block", "phase", "elements", "ms or 10^9"], rows)


def _slopes(axis, sizes: Sequence[int]) -> None:
    """Thin lines in the upper left corner that grow with n and with its square, over a decade."""
    low, high = axis.get_ylim()
    left, right = sizes[0], min(10 * sizes[0], sizes[-1])
    start = high / 2 / (right / left) ** 2
    for slope, word in _SLOPES.items():
        end = start * (right / left) ** slope
        axis.plot([left, right], [start, end], color=drawing.GREY, linewidth=0.7)
        axis.annotate(word, (right, end), color=drawing.GREY, fontsize=7.5, ha="left", va="bottom")
    axis.set_ylim(low, high)


FIGURES = {"set_transformer/complexity": complexity}
