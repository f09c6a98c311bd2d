"""The picture of one run of set anomaly detection: a few test sets, with the probability that the model gives each image."""

from collections.abc import Sequence
from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.intention.anomaly_tables import MODELS, accuracy, described

_SHOWN = 6  # sets


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """One set in each line; the anomaly has a frame, and the most probable image its number in bold: green where that is it."""
    (result,) = results
    arrays, model = result.examples, result.config["model"]
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
    layers, score = model["num_layers"], accuracy(result)
    figure.suptitle(
        f"{MODELS[model['name']]}, {layers} layer{'s' * (layers > 1)}, preset {result.preset}: {score.text()} % of the sets\n"
        f"{described(result)}",
        fontsize=9,
    )
    return drawing.save(figure, folder / "figure.png")
