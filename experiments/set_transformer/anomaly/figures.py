"""The picture of one run of set anomaly detection: a few test sets, with the predicted probability of each image."""

from pathlib import Path

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.set_transformer.labels import label


def run_figure(result: Result, folder: Path) -> Path:
    """One set in each line, see drawing.draw_anomalies."""
    arrays = result.examples
    images = arrays["image"]
    images = images[..., 0] if images.shape[-1] == 1 else images
    figure = drawing.draw_anomalies(images, arrays["anomaly"], arrays["trained/prediction"])
    found = result.metrics["trained/auroc"]["mean"]
    told = f"{result.content['facts']['data']}, AUROC {found:.3f}"
    figure.suptitle(f"{label(result)}, preset {result.preset}: {told}", fontsize=9)
    return drawing.save(figure, folder / "figure.png")
