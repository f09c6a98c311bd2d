"""The picture of one run of the encoder: which classes of the test images it tells apart."""

from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result


def run_figure(result: Result, folder: Path) -> Path:
    """The accuracy of each class by the first seed, the best first, and that of all images."""
    truth, found = result.examples["truth"], result.examples["trained/prediction"]
    right = [(int(label), float((found[truth == label] == label).mean())) for label in np.unique(truth)]
    right.sort(key=lambda pair: -pair[1])
    figure, ((axis,),) = drawing.new_figure(1, 1, width=4.8, height=3.0)
    axis.bar(range(len(right)), [share for _, share in right], color=drawing.BLUE, width=1)
    axis.axhline(float((found == truth).mean()), color=drawing.INK, linestyle="--", label="all images")
    axis.set(xlabel="class, by accuracy", ylabel="accuracy", ylim=(0, 1), xlim=(-0.5, len(right) - 0.5))
    axis.legend(fontsize=8)
    axis.set_title(f"{result.content['facts']['data']}, preset {result.preset}", fontsize=9)
    return drawing.save(figure, folder / "figure.png", ["class", "accuracy"], right)
