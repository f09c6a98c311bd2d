"""Figure 3 of the Set Transformer, accuracy by the number of inducing points; and the picture of one run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.harness import drawing
from experiments.harness.results import Result, spread
from experiments.set_transformer.counting.tables import CONFIG, accuracy, by_model
from experiments.set_transformer.labels import label, label_of
from experiments.set_transformer.paper_numbers import COUNTING

# Models without inducing points, as lines.
_BESIDE = {
    "sab_pma": dict(color=drawing.GREEN),
    "sab_mean": dict(color=drawing.AMBER, linestyle="--"),
    "rff_pma": dict(color=drawing.GREY),
    "rff_mean": dict(color=drawing.RED, linestyle="--"),
}


def figure3(results: Sequence[Result], folder: Path) -> Path:
    """ISAB + PMA by its number of inducing points, beside SAB and rFF with PMA and the mean; the paper's dotted."""
    found = by_model(results)
    induced = [result for result in found.values() if result.config["model"]["encoder"] == "isab"]
    induced = sorted(drawing.required(induced, f"Figure 3 needs results of {CONFIG} with ISABs"), key=_points)
    figure, ((axis,),) = drawing.new_figure(1, 1, width=4.2, height=3.2)
    points, cells = [_points(result) for result in induced], [accuracy(result) for result in induced]
    means, errors = zip(*((cell.mean, cell.error) for cell in cells))
    axis.errorbar(points, means, errors, fmt="o-", color=drawing.BLUE, capsize=2)
    rows = [("ISAB + PMA", *numbers) for numbers in zip(points, means, errors)]
    looks = [dict(color=drawing.BLUE, marker="o", label="ISAB + PMA")]
    for model, look in _BESIDE.items():
        if model in found:
            own = accuracy(found[model])
            axis.axhline(own.mean, **look)
            axis.axhspan(own.mean - own.error, own.mean + own.error, color=look["color"], alpha=0.2, linewidth=0)
            rows.append((label(found[model]), "", own.mean, own.error))
        looks.append(look | dict(label=label_of(model)))
        axis.axhline(COUNTING[model].mean, color=look["color"], linestyle=":", linewidth=1)
        rows.append((f"{label_of(model)}, the paper", "", COUNTING[model].mean, COUNTING[model].error))
    axis.set_xscale("log", base=2)
    axis.set(xticks=points, xticklabels=points, xlabel="inducing points", ylabel="accuracy")
    drawing.legend_below(figure, looks)
    told = spread(induced, "trained/accuracy", "sets")
    figure.suptitle(
        f"{induced[0].content['facts']['data']}, preset {induced[0].preset}; dotted: the paper's\n"
        f"bars and bands: standard error over\n{told}",
        fontsize=9,
    )
    return drawing.save(figure, folder / "figure3.png", ["model", "inducing points", "accuracy", "sem"], rows)


def run_figure(result: Result, folder: Path) -> Path:
    """Some sets with the rate that the first seed predicts, and its accuracy by the number of images."""
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
