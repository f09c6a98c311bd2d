"""Pictures of completed images from results."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.neural_processes.images import tables

CONFIGS = tables.CONFIGS
_ABSENT = 128  # the value of a pixel that is not observed


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One run: of each part one image, seen through more and more of its pixels; mean and standard deviation below."""
    (result,) = results
    arrays, parts = result.examples, tables.parts(result)
    counts = arrays["counts"]
    figure, axes = drawing.new_figure(3 * len(parts), len(counts) + 1, width=1.1, height=1.2)
    for index, part in enumerate(parts):
        truth, pixels = arrays["truth"][index, 0], arrays["pixels"][index, 0]
        shown = {
            f"{part}: observed": [*(observed(truth, pixels[:count]) for count in counts), truth],
            "mean": arrays["trained/prediction_mean"][index, 0],
            "std": arrays["trained/prediction_std"][index, 0],
        }
        for line, (name, images) in zip(axes[3 * index :], shown.items()):
            drawing.hide_after(len(images), [line])
            line[0].set_ylabel(name, fontsize=7)
            for axis, image in zip(line, images):
                show(axis, image)
    for axis, title in zip(axes[0], [*(f"{count} pixels" for count in counts), "truth"]):
        axis.set_title(title, fontsize=8)
    figure.suptitle(f"{tables.title(result)} (preset {result.preset})", fontsize=9)
    return drawing.save(figure, folder / "figure.png")


def observed(image: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """The image [height, width, channels] with all but some of its pixels grey, by their numbers in row order."""
    out = np.full_like(image, _ABSENT).reshape(-1, image.shape[-1])
    out[pixels] = image.reshape(out.shape)[pixels]
    return out.reshape(image.shape)


def show(axis: Axes, image: np.ndarray) -> None:
    """An image [height, width, channels] of bytes; one channel is grey."""
    axis.imshow(image[..., 0] if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255)
    drawing.box(axis)
