"""What the figures share: one style, and saving, with the numbers beside every picture."""

import contextlib
import contextvars
import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from experiments.harness.errors import UserError
from experiments.harness.run_directory import moved_into, write_text
from experiments.harness.settings import choose

INK, GREY, FAINT = "#222222", "#8a8a8a", "#d8d8d8"
# Their lightness tells them apart where hues do not, as for those who see no red or no green.
RED, BLUE, GREEN, AMBER, VIOLET = "#c02a2a", "#1f4fae", "#17c98a", "#d9a520", "#c583d0"
# Preset -> what a heading says of its runs.
EFFORTS = {"tiny": "runs of seconds", "quick": "short runs", "paper": "preset paper"}
# Kind of a picture -> the metadata that leave out when it was drawn: equal pictures are equal files.
_WITHOUT_TIME = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
FORMATS = tuple(_WITHOUT_TIME)
_form = contextvars.ContextVar("form", default=("png", ""))
matplotlib.rcParams.update(
    {
        "axes.edgecolor": INK,
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "figure.dpi": 150,
        "font.size": 9.5,
        "svg.hashsalt": "kvq_jax",  # of the names in a file, else random
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


def required(found: Any, needs: str) -> Any:
    """The results `found`. Raises UserError where there are none; needs: 'Figure 3 needs results of <config>'."""
    if not found:
        raise UserError(f"{needs}; there {'are' if 'results' in needs else 'is'} none")
    return found


def draw_against(axis: Axes, truth, prediction, **look) -> None:
    """Predictions against the truth, a dot for each number, and the line on which they are equal."""
    axis.axline((0, 0), slope=1, color=INK, linewidth=0.8)
    axis.plot(truth.ravel(), prediction.ravel(), ".", **look)


def box(axis: Axes, **settings) -> None:
    """Makes the axis a faint box without ticks, where only shapes matter; settings: of Axes.set."""
    axis.set(xticks=[], yticks=[], **settings)
    axis.grid(False)
    axis.spines[:].set(visible=True, color=FAINT)


def draw_anomalies(images, anomalies, probabilities) -> Figure:
    """One set in each line: images [sets, N, H, W(, 3)], the place of the anomaly [sets], probabilities [sets, N].

    The anomaly has a frame. The largest probability is bold: green if right, red if wrong.
    """
    figure, axes = new_figure(*images.shape[:2], width=0.8, height=0.95)
    for line, pictures, anomaly, probability in zip(axes, images, anomalies, probabilities):
        chosen = probability.argmax()
        for place, (axis, picture) in enumerate(zip(line, pictures)):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
            axis.spines[:].set(visible=place == anomaly, color=AMBER, linewidth=3)
            colour = (GREEN if chosen == anomaly else RED) if place == chosen else INK
            weight = "bold" if place == chosen else "normal"
            axis.set_xlabel(f"{probability[place]:.2f}", fontsize=7.5, color=colour, fontweight=weight)
    return figure


def legend_below(figure: Figure, looks: Sequence[dict]) -> None:
    """One legend for all panels, in as few lines as fit the figure; looks: color, label and so on of its entries."""
    handles = [Line2D([], [], **look) for look in looks]
    for lines in range(1, len(handles) + 1):
        columns = math.ceil(len(handles) / lines)
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def plain_ticks(axis: Axis, sizes: Iterable[float] = ()) -> None:
    """Numbers as they are said at the ticks of a logarithmic axis: at `sizes`, or at 1, 2 and 5 of each decade."""
    axis.set_major_locator(FixedLocator(list(sizes)) if sizes else LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


@contextlib.contextmanager
def saved_as(form: str, end: str = "") -> Iterator[None]:
    """Within it `save` writes pictures of this kind, one of FORMATS, whose names end so. Raises ConfigError."""
    before = _form.set((choose({known: known for known in FORMATS}, form, "--format"), end))
    try:
        yield
    finally:
        _form.reset(before)


def save(figure: Figure, path: Path, columns: Sequence[str] = (), rows: Iterable[Sequence] = ()) -> Path:
    """Writes the picture, making its folder, and beside it as CSV the numbers that it draws; returns its path.

    The name and kind of the path end as `saved_as` asks for, by default in .png.
    """
    form, end = _form.get()
    path = path.with_name(f"{path.stem}{end}.{form}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if columns:
        numbers = io.StringIO()
        csv.writer(numbers, lineterminator="\n").writerows([columns, *rows])
        write_text(path.with_suffix(".csv"), numbers.getvalue())
    with moved_into(path) as file:
        figure.savefig(file, format=form, metadata=_WITHOUT_TIME[form])
    return path
