"""Figure 3 of the Set Transformer, accuracy by the number of inducing points; and the picture of one run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result
from experiments.set_transformer.counting.tables import CONFIG, accuracy, by_model
from experiments.set_transformer.labels import label
from experiments.set_transformer.paper_numbers import COUNTING

_BESIDE = {"sab_pma": drawing.GREEN, "rff_pma": drawing.GREY}  # models without inducing points, as lines


def figure3(results: Sequence[Result], folder: Path) -> Path:
    """ISAB + PMA by its number of inducing points, beside SAB + PMA and rFF + PMA; the paper's two dotted."""
    found = by_model(results)
    induced = [result for result in found.values() if result.config["model"]["encoder"] == "isab"]
    induced = sorted(drawing.required(induced, f"Figure 3 needs results of {CONFIG} with ISABs"), key=_points)
    figure, ((axis,),) = drawing.new_figure(1, 1, width=4.2, height=3.2)
    rows = [(_points(result), accuracy(result).mean, accuracy(result).error) for result in induced]
    points, means, errors = zip(*rows)
    axis.errorbar(points, means, errors, fmt="o-", color=drawing.BLUE, capsize=2, label="ISAB + PMA")
    for model, colour in _BESIDE.items():
        if model in found:
            axis.axhline(accuracy(found[model]).mean, color=colour, label=label(found[model]))
        axis.axhline(COUNTING[model].mean, color=colour, linestyle=":", linewidth=1)
    axis.set_xscale("log", base=2)
    axis.set(xticks=points, xticklabels=points, xlabel="inducing points", ylabel="accuracy")
    axis.legend(fontsize=8)
    figure.suptitle(
        f"{induced[0].content['facts']['data']}, preset {induced[0].preset}; bars: standard error; dotted: the paper's",
        fontsize=9,
    )
    return drawing.save(figure, folder / "figure3.png", ["inducing points", "accuracy", "sem"], rows)


def run_figure(results: Sequence[Result], folder: Path) -> Path:
    """Some sets with the rate that the first seed predicts, and its accuracy by the number of images."""
    (result,) = results
    arrays = result.examples
    truth, rate, size, image = (arrays[name] for name in ("truth", "trained/prediction", "size", "image"))
    figure, axes = drawing.new_figure(len(image) + 1, 1, width=6.4, height=0.9)
    figure.set_figheight(0.9 * len(image) + 2.4)
    ((by_size,), *strips), grid = axes[::-1], axes[0][0].get_gridspec()
    grid.set_height_ratios([*[0.9] * len(image), 2.4])
    for number, (strip,) in enumerate(strips):
        shown = image[number][: size[number], ..., 0]
        strip.imshow(np.concatenate(list(shown), 1), cmap="gray", vmin=0, vmax=255)
        drawing.box(strip)
        strip.set_title(f"{truth[number]} characters, rate {rate[number]:.2f}", fontsize=8)
    sizes = np.unique(size)
    right = np.floor(rate) == truth
    shares = [float(right[size == one].mean()) for one in sizes]
    by_size.plot(sizes, shares, "o-", color=drawing.BLUE)
    by_size.set(xlabel="images of a set", ylabel="accuracy", ylim=(0, 1), xticks=sizes)
    figure.suptitle(f"{label(result)}, preset {result.preset}, accuracy over {len(truth)} sets", fontsize=10)
    return drawing.save(figure, folder / "figure.png", ["images", "accuracy"], zip(sizes.tolist(), shares))


def _points(result: Result) -> int:
    return result.config["model"]["num_inducing"]


FIGURES = {"set_transformer/figure3": figure3}
