"""Clusterings as in Figure 4 of the Set Transformer: the network's, after a step of EM, the oracle's, and EM's own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from experiments.harness import drawing
from experiments.harness.results import Result, comparable
from experiments.set_transformer.clustering.host import fit
from experiments.set_transformer.clustering.tables import CONFIG, VARYING
from experiments.set_transformer.labels import label, own_op, variant
from kvq_jax.models.mixture import Mixture, log_joint, log_likelihood

CONFIGS = (CONFIG, VARYING)
COLOURS = (drawing.BLUE, drawing.RED, drawing.GREEN, drawing.AMBER, drawing.VIOLET, drawing.INK)
_SHOWN = 4  # sets
_SEEN = 1e-6  # the least weight of a component that is drawn
_BEST = ("isab16_pma", "isab32_pma", "isab64_pma", "sab_pma")  # whose clusterings are drawn, if they are there
_PANELS = {
    "truth": "oracle",
    "prediction": "network",
    "prediction_em": "after one step of EM",
    "em": "EM, scikit-learn",
}


def figure4(results: Sequence[Result], folder: Path) -> Path:
    """Sets of four clusters (or of six, without results of four) by the first model of those with ISABs."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    found = drawing.required(
        comparable(own, CONFIG, lambda result: result.axes["model"], variant=variant),
        "Figure 4 needs results of set_transformer/clustering",
    )
    return _draw(found[next((model for model in _BEST if model in found), next(iter(found)))], folder / "figure4.png")


def run_figure(result: Result, folder: Path) -> Path:
    """The clusterings of one run."""
    return _draw(result, folder / "figure.png")


def _draw(result: Result, path: Path) -> Path:
    """A set in each line, a clustering in each column: ellipses at two standard deviations, and the likelihood."""
    arrays = result.examples
    sets = min(_SHOWN, len(arrays["x"]))
    figure, axes = drawing.new_figure(sets, len(_PANELS), width=2.1, height=2.1, sharex="row", sharey="row")
    rows = []
    for number, line in enumerate(axes):
        x = arrays["x"][number][arrays["there"][number]]
        found = {name: mixture_of_example(arrays, name, number) for name in _PANELS if name != "em"}
        starts = result.config["evaluation"]["em_starts"]
        em = fit(x, int(np.isfinite(found["truth"].log_weight).sum()), starts)
        found["em"] = Mixture(np.log(em.weights_), em.means_, np.sqrt(em.covariances_))
        for axis, (name, title) in zip(line, _PANELS.items()):
            likelihood = float(log_likelihood(found[name], x))
            _draw_clustering(axis, x, found[name])
            axis.set_title(f"{title}, {likelihood:.3f}" if number == 0 else f"{likelihood:.3f}", fontsize=8)
            rows.append((number, title, likelihood))
    model, preset = label(result), result.preset
    figure.suptitle(
        f"{model}, {drawing.EFFORTS[preset]}: log-likelihood of a point\n"
        "ellipses: two standard deviations of a component, thicker: of more weight",
        fontsize=9,
    )
    return drawing.save(figure, path, ["set", "mixture", "log_likelihood"], rows)


def mixture_of_example(arrays: Mapping[str, np.ndarray], name: str, number: int) -> Mixture:
    """The mixture `name` of an example, of the trained network."""
    rows = arrays[name if name in arrays else f"trained/{name}"][number]
    dimension = (rows.shape[-1] - 1) // 2
    with np.errstate(divide="ignore"):  # a component that is not there has no weight
        log_weight = np.log(rows[:, 0])
    return Mixture(log_weight, rows[:, 1 : 1 + dimension], rows[:, 1 + dimension :])


def _draw_clustering(axis: Axes, x: np.ndarray, mixture: Mixture) -> None:
    component = np.asarray(log_joint(mixture, x).argmax(-1))
    for number, (mean, std) in enumerate(zip(mixture.mean, mixture.std)):
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(*x[component == number].T[:2], ".", color=colour, markersize=1.5)
        weight = float(np.exp(mixture.log_weight[number]))
        if weight < _SEEN:
            continue
        look = dict(fill=False, edgecolor=colour, linewidth=0.6 + 2 * weight)
        axis.add_patch(Ellipse(mean[:2], 4 * std[0], 4 * std[1], **look))
    drawing.box(axis, aspect="equal")


FIGURES = {"set_transformer/figure4": figure4}
