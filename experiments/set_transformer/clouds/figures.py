"""The picture of one run of classes of point clouds: some test clouds, with their class and the predicted one."""

from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.set_transformer.labels import label

_COLUMNS = 5


def run_figure(result: Result, folder: Path) -> Path:
    """Clouds from one side, the nearer points darker; green where the first seed is right, else red."""
    arrays, classes = result.examples, result.content["facts"]["classes"]
    clouds = arrays["x"]
    lines = -(-len(clouds) // _COLUMNS)
    figure, axes = drawing.new_figure(lines, _COLUMNS, width=1.6, height=1.8)
    flat = [axis for line in axes for axis in line]
    for axis, cloud, truth, found in zip(flat, clouds, arrays["truth"], arrays["trained/prediction"]):
        axis.scatter(*cloud[:, :2].T, c=cloud[:, 2], cmap="Greys", vmin=-3, vmax=2, s=3)
        drawing.box(axis, aspect="equal")
        axis.set_title(
            f"{classes[truth]}\n{classes[found]}", fontsize=7.5, color=drawing.GREEN if truth == found else drawing.RED
        )
    drawing.hide_after(len(clouds), axes)
    figure.suptitle(f"{label(result)}, preset {result.preset}: {result.content['facts']['data']}", fontsize=9)
    return drawing.save(figure, folder / "figure.png")
