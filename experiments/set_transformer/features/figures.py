"""The picture of one run of clustering features: some sets in the plane of their two principal components."""

from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.experiment import DATA
from experiments.harness.results import Result
from experiments.set_transformer.clustering.figures import COLOURS, mixture_of_example
from experiments.set_transformer.labels import label
from kvq_jax.models.mixture import log_joint

_PANELS = {"truth": "moments of the classes", "prediction": "network", "prediction_em": "after one step of EM"}


def run_figure(result: Result, folder: Path) -> Path:
    """A set in each line, a clustering by the first seed in each column: colours are components."""
    arrays = result.examples
    features = arrays["x"] if "x" in arrays else arrays[f"{DATA}x"]  # as earlier results name them
    figure, axes = drawing.new_figure(len(features), len(_PANELS), width=2.4, height=2.2)
    for number, line in enumerate(axes):
        x = features[number][arrays["there"][number]]
        centred = x - x.mean(0)
        place = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
        for axis, (name, title) in zip(line, _PANELS.items()):
            mixture = mixture_of_example(arrays, name, number)
            component = np.asarray(log_joint(mixture, x).argmax(-1))
            for one in range(len(mixture.mean)):
                axis.plot(*place[component == one].T, ".", color=COLOURS[one % len(COLOURS)], markersize=2)
            drawing.box(axis)
            if number == 0:
                axis.set_title(title, fontsize=8)
    figure.suptitle(f"{label(result)}, preset {result.preset}: {result.content['facts']['data']}", fontsize=9)
    return drawing.save(figure, folder / "figure.png")
