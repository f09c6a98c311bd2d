"""Tables of the scaling experiment: the numbers of Figure 3 of the Intention paper, and one run."""

from collections.abc import Sequence

from experiments.harness.results import Result, facts
from experiments.harness.tables import Cell, Table, measured, median
from experiments.intention.scaling.searches import (
    STATISTICS,
    Search,
    dimension,
    own_results,
    searches,
    size,
    smallest_size,
    threshold_of,
)
from experiments.regression.labels import label, model_of
from kvq_jax.models import WEIGHT_REGRESSORS


def figure3(results: Sequence[Result]) -> Table | None:
    """The smallest size for each model and dimension, by the mean error and by the median; None without results."""
    found = searches(results)
    if not found:
        return None
    threshold, dimensions = threshold_of(results), sorted({d for _, d in found})
    rows = [
        (
            f"{row.label}, by {statistic}",
            [_size_text(found[model, d], threshold, statistic) if (model, d) in found else Cell() for d in dimensions],
        )
        for statistic in STATISTICS
        for model, row in WEIGHT_REGRESSORS.items()
    ]
    rows.append(("the paper's Figure 3", ["(curve)"] * len(dimensions)))
    own = own_results(results)
    told = facts(own, "trained/mse")
    caption = (
        f"Preset {told['preset']}, {own[0].content['steps']} steps: smallest size tried, doubling from 2, whose "
        f"squared error of a weight is at most {threshold:g} (variance of a weight: 1), by the mean or the median over "
        "tasks; > s: not reached by any size up to s. Least squares itself is exact. The paper prints no numbers and "
        "no threshold for this figure."
    )
    columns = ["model", *(f"d = {d}" for d in dimensions)]
    return Table("Size that least squares takes, by dimension", columns, rows, caption, facts=told)


def run_table(results: Sequence[Result]) -> Table:
    """One run: its error beside that of least squares itself."""
    (result,) = results
    names = {"trained/mse": label(model_of(result)), "trained/least_squares_mse": "least squares (oracle)"}
    rows = [(name, [measured(result.metrics[of]), median(result.metrics[of])]) for of, name in names.items()]
    told = facts(results, "trained/mse")
    caption = (
        f"Squared error of a weight (variance 1) over {told['n']} tasks; preset {result.preset}. The search "
        f"for a size ends at a mean of {result.config['evaluation']['threshold']:g}."
    )
    title = f"Least squares, d = {dimension(result)}, size {size(result)}"
    return Table(title, ["weights from", "mean", "median"], rows, caption, facts=told)


def _size_text(search: Search, threshold: float, statistic: str) -> str:
    smallest = smallest_size(search, threshold, statistic)
    return f"> {max(search)}" if smallest is None else str(smallest)


TABLES = {"intention/figure3": figure3}
