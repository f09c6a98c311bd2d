"""Pictures of completed images from results: Figures 7 and 11 of the CMANP paper, those of the ANP slides, one run's.

What shows images is drawn from the examples of runs made here: committed results have none, as scripts.collect says.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.harness import drawing
from experiments.harness.results import Result, comparable, several, spread
from experiments.neural_processes import attention_results
from experiments.neural_processes.images import montage, tables
from experiments.neural_processes.images.completion import ATTENDED
from experiments.neural_processes.likelihoods import kind, log_likelihood
from kvq_jax.models import MODELS, family

CONFIGS = tables.CONFIGS
DATA = ("digits", "mnist", "emnist", "celeba32", "celeba64", "celeba128")
_OWN = "trained/prediction_"  # among the examples of a result
_IMAGES = 2  # of them are drawn, of different parts where there are some
_SAMPLES = 2
_MARKERS = "os^DvPX"

Runs = Mapping[str, Result]  # how a run is named in a picture -> its result


def run_figure(result: Result, folder: Path) -> Path:
    """One run: images seen through more and more of their pixels; mean, standard deviation and samples."""
    figure = _completions({MODELS[result.axes["model"]].label: result}, tables.title(result))
    return drawing.save(figure, folder / "figure.png")


def figure7(results: Sequence[Result], folder: Path) -> Path:
    """The likelihood of every model by the number of observed pixels, a panel for each part of the data."""
    cells = drawing.required(tables.chosen_results(results), f"Figure 7 needs results of {CONFIGS[0]}")
    cells = {place: result for place, result in cells.items() if result.metrics}
    places = [place for place in tables.PLACES if any(data == place[0] for _, data in cells)]
    figure, (axes,) = drawing.new_figure(1, len(places), width=3.3, height=3.6)
    rows, looks = [], {}
    colours = dict(zip(family("neural_process"), matplotlib.colormaps["tab20"].colors))
    for axis, (data, part) in zip(axes, places):
        for model in (model for model in colours if (model, data) in cells):
            result = cells[model, data]
            counts = result.config["evaluation"]["counts"]
            found = [log_likelihood(result, f"{part}/target@{count}") for count in counts]
            means, errors = np.array([(cell.mean, cell.error) for cell in found], float).T
            broken = "--" if kind(model) == "joint" else "-"
            looks[model] = dict(color=colours[model], linestyle=broken, label=MODELS[model].label)
            place = list(colours).index(model)
            # What is drawn later is smaller, so that a curve upon another hides none.
            looks[model] |= dict(marker=_MARKERS[place % len(_MARKERS)], markersize=7 - 4 * place / len(colours))
            axis.errorbar(counts, means, yerr=errors, linewidth=2 - place / len(colours), **looks[model])
            rows += [(data, part, model, *map(float, numbers)) for numbers in zip(counts, means, errors)]
        axis.set_xscale("log")
        axis.set_xticks(counts, list(map(str, counts)))
        axis.minorticks_off()
        own = [result for (_, its), result in cells.items() if its == data]
        told = spread(own, f"trained/{part}/target@{counts[0]}", "images")
        axis.set_title(f"{tables.PLACES[data, part]}\nmean over {told}", fontsize=9)
        axis.set_xlabel("observed pixels")
    axes[0].set_ylabel("log-likelihood per target pixel")
    handles = [Line2D([], [], **look) for look in looks.values()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2 * len(places), fontsize=7, handlelength=4.5)
    effort = drawing.EFFORTS[next(iter(cells.values())).preset]
    joint = "; broken: all targets jointly" * any(kind(model) == "joint" for model in looks)
    figure.suptitle(f"Likelihood by observed pixels ({effort}); bars: standard error{joint}", fontsize=9.5)
    return drawing.save(figure, folder / "figure7.png", ["data", "part", "model", "pixels", "likelihood", "sem"], rows)


def figure11(results: Sequence[Result], folder: Path, data: str) -> Path:
    """The same images completed by every model."""
    own = [result for result in results if result.name == CONFIGS[0] and result.axes["data"] == data]
    cells = comparable(own, CONFIGS[0], lambda result: result.axes["model"])
    runs = {MODELS[model].label: cells[model] for model in MODELS if model in cells}
    name = f"figure11_{data}"
    shown = _drawable(runs, "truth", f"cmanp/{name} needs results of {CONFIGS[0]} with data={data} and their images")
    figure = _completions(shown, f"Image completion, {_quoted(shown)}")
    return drawing.save(figure, folder / f"{name}.png")


def kinds(results: Sequence[Result], folder: Path, data: str) -> Path:
    """The same images completed by ANP with each kind of attention."""
    name = f"images_{data}"
    shown = _drawable(attention_results.of_anp(results, data), "truth", _needs(name, data))
    return drawing.save(_completions(shown, f"Attention of ANP, {_quoted(shown)}"), folder / f"{name}.png")


def half(results: Sequence[Result], folder: Path, data: str) -> Path:
    """The lower half from the upper half, by each kind of attention; samples differ in the latent alone."""
    name = f"half_{data}"
    shown = _drawable(attention_results.of_anp(results, data), f"{_OWN}half_mean", _needs(name, data))
    white = _white(shown, "half_std")
    panels = []
    for part, image in _chosen(shown):
        truth = next(iter(shown.values())).examples["truth"][part, image]
        upper = montage.observed(truth, np.arange(truth.shape[0] // 2 * truth.shape[1]))
        rows = {}
        for label, result in shown.items():
            mean, std, samples = (_of(result, f"half_{what}", part, image) for what in ("mean", "std", "samples"))
            rows[label] = [upper, mean, montage.spread(std, white), *samples, truth]
        panels.append((rows, ["seen", "mean", "std", *["sample"] * len(samples), "truth"]))
    return drawing.save(montage.panels(panels, _heading("Lower half", shown, white), side=0.7), folder / f"{name}.png")


def resolution(results: Sequence[Result], folder: Path, data: str) -> Path:
    """Few large pixels made small ones, and all pixels made smaller ones, by the weights trained at one resolution.

    Samples, of the first, differ in the latent alone; their places are white for runs whose examples have none.
    """
    name = f"resolution_{data}"
    shown = _drawable(attention_results.of_anp(results, data), "coarse", _needs(name, data))
    white = max(_white(shown, "coarse_std"), _white(shown, "fine_std"))
    array = f"{_OWN}coarse_samples"
    most = max((run.examples[array].shape[2] for run in shown.values() if array in run.examples), default=0)
    panels = []
    for part, image in _chosen(shown):
        arrays = next(iter(shown.values())).examples
        truth, coarse = arrays["truth"][part, image], arrays["coarse"][part, image]
        rows = {}
        for label, result in shown.items():
            names = ("coarse_mean", "coarse_std", "fine_mean", "fine_std")
            mean, std, fine, fine_std = (_of(result, of, part, image) for of in names)
            samples = [*result.examples[array][part, image]] if array in result.examples else []
            samples += [np.full_like(truth, 255)] * (most - len(samples))
            seen = [coarse, mean, montage.spread(std, white), *samples]
            rows[label] = [*seen, truth, fine, montage.spread(fine_std, white)]
        sides = [f"{len(image)}x{len(image[0])}" for image in (coarse, mean, truth, fine)]
        columns = [f"seen: {sides[0]}", sides[1], "std", *["sample"] * most, f"seen: {sides[2]}", sides[3], "std"]
        panels.append((rows, columns))
    figure = montage.panels(panels, _heading("Resolution mapping", shown, white), across=1, side=0.9)
    return drawing.save(figure, folder / f"{name}.png")


def heads(results: Sequence[Result], folder: Path, data: str) -> Path:
    """What each pixel counts for in the prediction of one, in every head: each kind of attention, each operator."""
    name = f"attention_{data}"
    found = attention_results.of_anp(results, data) | attention_results.of_anp(results, data, "op")
    shown = _drawable(found, f"{_OWN}attention", _needs(name, data))
    panels = []
    for part, image in _chosen(shown):
        rows = {}
        for label, result in shown.items():
            truth, maps = result.examples["truth"][part, image], _of(result, "attention", part, image)
            at = [side // ATTENDED for side in truth.shape[:2]]
            rows[label] = [montage.marked(truth, *at), *montage.heat(maps)]
        most = max(map(len, rows.values())) - 1
        panels.append((rows, ["pixel", *(f"head {number + 1}" for number in range(most))]))
    effort = drawing.EFFORTS[next(iter(shown.values())).preset]
    heading = f"Attention of ANP at one pixel (red frame), {_quoted(shown)} ({effort})"
    heading += "\nto the largest weight of a map: from black to yellow, or, with negative weights, blue, white and red"
    return drawing.save(montage.panels(panels, heading, across=2), folder / f"{name}.png")


FIGURES = {"cmanp/figure7": figure7}
FIGURES |= {f"cmanp/figure11_{data}": functools.partial(figure11, data=data) for data in DATA}
FIGURES |= {
    f"anp/{name}_{data}": functools.partial(draw, data=data)
    for name, draw in {"images": kinds, "half": half, "resolution": resolution, "attention": heads}.items()
    for data in DATA[:4]
}


def _needs(name: str, data: str) -> str:
    return f"anp/{name} needs results of {attention_results.CONFIG} with model=anp,data={data} and their images"


def _drawable(runs: Runs, array: str, needs: str) -> Runs:
    """The runs whose examples hold an array, of the same images; stderr tells of the others.

    Raises UserError where none is left.
    """
    found, first = {}, None
    for label, result in runs.items():
        arrays = result.examples if (result.folder / "examples.npz").exists() else {}
        reason = None if array in arrays and "truth" in arrays else "it holds no images: run it here"
        if reason is None:
            same = [arrays[name] for name in ("truth", "pixels")]
            first = first or same
            alike = all(np.array_equal(one, other) for one, other in zip(first, same))
            reason = None if alike else "its images are others than those of the first"
        if reason:
            print(f"note: {label} is not drawn from {result.folder}: {reason}", file=sys.stderr)
        else:
            found[label] = result
    return drawing.required(found, needs)


def _completions(shown: Runs, heading: str) -> Figure:
    """What is observed, and a panel for each run: mean, standard deviation and samples by observed pixels."""
    first = next(iter(shown.values()))
    counts, white = first.examples["counts"], _white(shown, "std")
    columns = [*map(str, counts[:-1]), f"all {counts[-1]}"]
    panels = [({}, columns), *(({}, columns) for _ in shown)]
    for number, (part, image) in enumerate(_chosen(shown), 1):
        truth, pixels = (first.examples[array][part, image] for array in ("truth", "pixels"))
        panels[0][0][f"{number}: {tables.parts(first)[part]}"] = [
            montage.observed(truth, pixels[:count]) for count in counts
        ]
        for (rows, _), result in zip(panels[1:], shown.values()):
            rows[f"{number}: mean"] = _of(result, "mean", part, image)
            rows[f"{number}: std"] = montage.spread(_of(result, "std", part, image), white)
            if f"{_OWN}samples" in result.examples:
                drawn = np.moveaxis(_of(result, "samples", part, image), 1, 0)[:_SAMPLES]
                rows |= {f"{number}: sample {index}": row for index, row in enumerate(drawn, 1)}
    titles = ["observed", *(f"{label}, {result.content['steps']} steps" for label, result in shown.items())]
    return montage.panels(panels, _heading(heading, shown, white), titles)


def _chosen(shown: Runs) -> list[tuple[int, int]]:
    """(part, image) of the images that are drawn: the first of each part, then the second."""
    parts, images = next(iter(shown.values())).examples["truth"].shape[:2]
    return [(part, image) for image in range(images) for part in range(parts)][:_IMAGES]


def _of(result: Result, name: str, part: int, image: int) -> np.ndarray:
    return result.examples[_OWN + name][part, image]


def _white(shown: Runs, name: str) -> float:
    """The largest standard deviation of the images that are drawn, the mean over channels, in bytes."""
    return max(1.0, *(_of(run, name, *which).mean(-1).max() for run in shown.values() for which in _chosen(shown)))


def _heading(text: str, shown: Runs, white: float) -> str:
    preset = next(iter(shown.values())).preset
    return f"{text} ({drawing.EFFORTS[preset]})\nstd: black is 0, white {white / 255:.2f} of the range of a value"


def _quoted(shown: Runs) -> str:
    return several(result.content["facts"]["data"] for result in shown.values())
