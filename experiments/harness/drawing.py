"""What the figures share: one style, and saving, with the numbers beside every picture."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GREY, FAINT = "#222222", "#8a8a8a", "#d8d8d8"
RED, BLUE, GREEN, AMBER, VIOLET = "#c8372d", "#2f6db5", "#3d9150", "#d99013", "#8a5fb0"
matplotlib.rcParams.update(
    {
        "axes.edgecolor": INK,
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.dpi": 150,
        "font.size": 9.5,
        "grid.color": FAINT,
        "grid.linewidth": 0.5,
        "legend.frameon": False,
        "lines.linewidth": 1.6,
    }
)


def new_figure(
    rows: int, columns: int, width: float = 3.2, height: float = 2.7, **options
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns panels, each `width` x `height` inches, that belongs to no window."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options).tolist()


def hide_after(shown: int, axes: list[list[Axes]]) -> None:
    """Hides the panels after the first `shown`; the last left in a column gets the tick labels of a shared x axis."""
    columns = len(axes[0])
    for number, axis in enumerate(axis for line in axes for axis in line):
        axis.set_visible(number < shown)
        if number + columns >= shown:
            axis.tick_params(labelbottom=True)


def save(figure: Figure, path: Path) -> Path:
    """Writes the picture, making its folder; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def save_numbers(path: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> Path:
    """Writes the numbers that a figure draws as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path
