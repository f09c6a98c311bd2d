"""The picture of one run of set anomaly detection: a few test sets, with the predicted probability of each image."""

from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.intention.anomaly.tables import EXPERIMENT, accuracy, described, label

CONFIGS = (EXPERIMENT,)
_SHOWN = 6  # sets


def run_figure(result: Result, folder: Path) -> Path:
    """One set in each line, see drawing.draw_anomalies."""
    arrays = result.examples
    images, probabilities = arrays["image"][:_SHOWN], arrays["trained/prediction"][:_SHOWN]
    figure = drawing.draw_anomalies(images, arrays["anomaly"], probabilities)
    heading = f"{label(result)}, {drawing.EFFORTS[result.preset]}: {accuracy(result).text()} % of the sets"
    figure.suptitle(f"{heading}\n{described(result)}", fontsize=9)
    return drawing.save(figure, folder / "figure.png")
