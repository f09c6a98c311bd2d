"""The picture of one run of max regression: what it predicts of some sets, and its error by their size."""

from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.set_transformer.labels import label


def run_figure(result: Result, folder: Path) -> Path:
    """Predictions of the first seed against the truth, and its mean absolute error by the number of elements."""
    arrays = result.examples
    truth, prediction, size = arrays["truth"], arrays["trained/prediction"], arrays["size"]
    figure, ((against, errors),) = drawing.new_figure(1, 2)
    drawing.draw_against(against, truth, prediction, color=drawing.BLUE, markersize=3)
    against.set(xlabel="maximum", ylabel="prediction")
    sizes = np.unique(size)
    means = [float(np.abs(prediction - truth)[size == number].mean()) for number in sizes]
    errors.plot(sizes, means, "o-", color=drawing.BLUE)
    errors.set(xlabel="elements of a set", ylabel="mean absolute error", ylim=(0, None))
    figure.suptitle(f"{label(result)}, {drawing.EFFORTS[result.preset]}, {len(truth)} sets", fontsize=10)
    return drawing.save(figure, folder / "figure.png", ["elements", "mae"], zip(sizes.tolist(), means))
