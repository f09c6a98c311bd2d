"""The picture of one run of set anomaly detection: a few test sets, with the predicted probability of each image."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.intention.anomaly.tables import EXPERIMENT, accuracy, described, label

CONFIGS = (EXPERIMENT,)
_SHOWN = 6  # sets


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One set in each line. The anomaly has a frame. The largest probability is bold: green if right, red if wrong."""
    (result,) = results
    arrays = result.examples
    images, probabilities = arrays["image"][:_SHOWN], arrays["trained/prediction"][:_SHOWN]
    figure, axes = drawing.new_figure(len(images), images.shape[1], width=0.8, height=0.95)
    for line, pictures, anomaly, probability in zip(axes, images, arrays["anomaly"], probabilities):
        chosen = probability.argmax()
        for place, (axis, picture) in enumerate(zip(line, pictures)):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.grid(False)
            axis.spines[:].set(visible=place == anomaly, color=drawing.AMBER, linewidth=3)
            colour = (drawing.GREEN if chosen == anomaly else drawing.RED) if place == chosen else drawing.INK
            weight = "bold" if place == chosen else "normal"
            axis.set_xlabel(f"{probability[place]:.2f}", fontsize=7.5, color=colour, fontweight=weight)
    heading = f"{label(result)}, {drawing.EFFORTS[result.preset]}: {accuracy(result).text()} % of the sets"
    figure.suptitle(f"{heading}\n{described(result)}", fontsize=9)
    return drawing.save(figure, folder / "figure.png")
