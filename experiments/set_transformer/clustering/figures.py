"""Figure 4 of the Set Transformer, clusterings by four networks; and those of one run, also after a step of EM.

Beside them stand the true mixture and that of scikit-learn's EM, which the paper does not draw.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse

from experiments.harness import drawing
from experiments.harness.errors import UserError
from experiments.harness.results import Result, comparable
from experiments.set_transformer.clustering.host import fit
from experiments.set_transformer.clustering.tables import CONFIG, VARYING
from experiments.set_transformer.labels import label, own_op, variant
from kvq_jax.models.mixture import Mixture, log_joint, log_likelihood

CONFIGS = (CONFIG, VARYING)
COLOURS = (drawing.BLUE, drawing.RED, drawing.GREEN, drawing.AMBER, drawing.VIOLET, drawing.INK)
_SHOWN = 4  # sets; the paper shows ten
_SEEN = 1e-6  # the least weight of a component that is drawn
_COMPARED = ("rff_mean", "sab_mean", "rff_pma", "isab16_pma")  # the paper's four
_ORACLE, _EM = "oracle", "EM, scikit-learn"
Panels = Mapping[str, tuple[Result, str]]  # title -> a run and the name of a mixture among its examples


def figure4(results: Sequence[Result], folder: Path) -> Path:
    """Sets of four clusters (or of six, without results of four) by those of the paper's networks that there are.

    Without any of them, by the first there is. Raises UserError where their test sets differ.
    """
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    found = drawing.required(
        comparable(own, CONFIG, lambda result: result.axes["model"], variant=variant),
        "Figure 4 needs results of set_transformer/clustering",
    )
    runs = [found[model] for model in _COMPARED if model in found] or [next(iter(found.values()))]
    first, *others = runs
    for run in others:
        sets = first.examples["x"], run.examples["x"]
        if sets[0].shape != sets[1].shape or not np.allclose(*sets, atol=1e-3):
            raise UserError(f"Figure 4 has one test set in a line: those of {first.folder} and {run.folder} differ")
    panels = {_ORACLE: (first, "truth")} | {label(run): (run, "prediction") for run in runs}
    return _draw(panels, f"Clustering, {drawing.EFFORTS[first.preset]}", folder / "figure4.png")


def run_figure(result: Result, folder: Path) -> Path:
    """The clusterings of one run."""
    names = {_ORACLE: "truth", "network": "prediction", "after one step of EM": "prediction_em"}
    heading = f"{label(result)}, {drawing.EFFORTS[result.preset]}"
    return _draw({title: (result, name) for title, name in names.items()}, heading, folder / "figure.png")


def _draw(panels: Panels, heading: str, path: Path) -> Path:
    """A set in each line, a clustering in each column, EM's last: ellipses at two deviations, and the likelihood."""
    run, _ = panels[_ORACLE]
    arrays, starts = run.examples, run.config["evaluation"]["em_starts"]
    sets = min(_SHOWN, len(arrays["x"]))
    figure, axes = drawing.new_figure(sets, len(panels) + 1, width=1.9, height=2.0, sharex="row", sharey="row")
    rows = []
    for number, line in enumerate(axes):
        x = arrays["x"][number][arrays["there"][number]]
        found = {title: mixture_of_example(of.examples, name, number) for title, (of, name) in panels.items()}
        em = fit(x, int(np.isfinite(found[_ORACLE].log_weight).sum()), starts)
        found[_EM] = Mixture(np.log(em.weights_), em.means_, np.sqrt(em.covariances_))
        for axis, (title, mixture) in zip(line, found.items()):
            likelihood = float(log_likelihood(mixture, x))
            _draw_clustering(axis, x, mixture)
            axis.set_title(f"{title}\n{likelihood:.3f}" if number == 0 else f"{likelihood:.3f}", fontsize=8)
            rows.append((number, title, likelihood))
    figure.suptitle(
        f"{heading}: log-likelihood of a point\n"
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
