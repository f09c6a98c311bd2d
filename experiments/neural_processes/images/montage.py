"""Many small images in one panel, rows and columns of them with names; many panels in one picture; colours."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import drawing

_NAMES, _LEAST = 0.75, 4.5  # inches: the names of rows, the least width of a picture
_GAP = 0.08  # between images, in their widths
_ABSENT = 128  # the value of a pixel that is not observed


def draw(
    axis: Axes, rows: Mapping[str, Sequence[np.ndarray]], columns: Sequence[str] = (), room: tuple[int, int] = (0, 0)
) -> None:
    """Images [height, width, 1 or 3] uint8 in rows, which may be of unequal length.

    All are drawn at one size: that of the largest, of which the sizes of the others must be divisors. There is `room`
    for so many rows and columns at least, so that panels of one size have images of one size.
    """
    height, width = (max(image.shape[side] for row in rows.values() for image in row) for side in (0, 1))
    down, right = (length + max(1, round(_GAP * length)) for length in (height, width))
    lines, across = (max(pair) for pair in zip(room, (len(rows), max(map(len, rows.values())))))
    canvas = np.full((lines * down, across * right, 3), 255, np.uint8)
    for i, row in enumerate(rows.values()):
        for j, image in enumerate(row):
            large = image.repeat(height // image.shape[0], 0).repeat(width // image.shape[1], 1)
            canvas[i * down : i * down + height, j * right : j * right + width] = large
    axis.imshow(canvas, interpolation="nearest")
    axis.set_anchor("N")
    axis.grid(False)
    axis.spines[:].set_visible(False)
    axis.set_yticks(down * np.arange(len(rows)) + height / 2, list(rows))
    axis.set_xticks(right * np.arange(len(columns)) + width / 2, columns)
    axis.tick_params(length=0, labelsize=6.5, top=False, labeltop=True, bottom=False, labelbottom=False)


def panels(
    shown: Sequence[tuple[Mapping[str, Sequence[np.ndarray]], Sequence[str]]],
    heading: str,
    titles: Sequence[str] = (),
    across: int = 4,
    side: float = 0.5,
) -> Figure:
    """A montage for each (rows, names of columns), `across` in a line; `side` of an image in inches."""
    across = min(across, len(shown))
    lines = -(-len(shown) // across)
    widest, tallest = (max(len(panel[which]) for panel in shown) for which in (1, 0))
    size = dict(width=max(_NAMES + side * widest, _LEAST / across), height=0.35 + side * tallest + 0.4 / lines)
    figure, axes = drawing.new_figure(lines, across, **size)
    drawing.hide_after(len(shown), axes)
    places = [axis for line in axes for axis in line]
    for axis, (rows, columns) in zip(places, shown):
        draw(axis, rows, columns, (tallest, widest))
    for axis, title in zip(places, titles):
        axis.set_title(title, fontsize=8)
    figure.suptitle(heading, fontsize=9)
    return figure


def observed(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """The image [height, width, channels] with all but some of its pixels grey, by their numbers in row order."""
    out = np.full_like(image, _ABSENT).reshape(-1, image.shape[-1])
    out[pixels] = image.reshape(out.shape)[pixels]
    return out.reshape(image.shape)


def spread(std: np.ndarray, white: float) -> np.ndarray:
    """Standard deviations [..., channels] in grey, the mean over channels, from black at 0 to white at `white`."""
    return np.rint(255 * np.minimum(std.mean(-1, keepdims=True) / white, 1)).astype(np.uint8)


def heat(maps: np.ndarray) -> np.ndarray:
    """Maps of weights [..., height, width] in colours, each from 0 to its largest: [..., height, width, 3].

    Black to yellow; blue, white at 0, and red for all maps where one has negative weights.
    """
    most = np.maximum(np.abs(maps).max((-1, -2), keepdims=True), 1e-30)
    if maps.min() < 0:
        return _coloured("RdBu_r", 0.5 + 0.5 * maps / most)
    return _coloured("inferno", maps / most)


def marked(image: np.ndarray, row: int, column: int) -> np.ndarray:
    """The image [height, width, channels] in colour, with a red frame around one of its pixels."""
    out = np.broadcast_to(image, (*image.shape[:2], 3)).copy()
    rows, columns = np.ogrid[: out.shape[0], : out.shape[1]]
    out[np.maximum(abs(rows - row), abs(columns - column)) == 1 + len(out) // 16] = (255, 0, 0)
    return out


def _coloured(colours: str, values: np.ndarray) -> np.ndarray:
    return matplotlib.colormaps[colours](np.clip(values, 0, 1), bytes=True)[..., :3]
