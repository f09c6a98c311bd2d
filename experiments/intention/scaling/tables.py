"""The searches for a latent size, the numbers of Figure 3 of the Intention paper; and the table of one run."""

from collections.abc import Sequence

from experiments.harness.errors import UserError
from experiments.harness.results import Result, comparable, drawn, facts, seeds_of
from experiments.harness.tables import Cell, Table, measured, median
from experiments.regression.labels import label, model_of
from kvq_jax.models import WEIGHT_REGRESSORS

STATISTICS = ("mean", "median")  # of the error over tasks

_NAME = "intention/scaling"

Search = dict[int, dict]  # size tried -> summary of the error over tasks


def searches(results: Sequence[Result]) -> dict[tuple[str, int], Search]:
    """(model, dimension) -> its search, sizes increasing: all of one preset, models in the paper's order."""
    own = own_results(results)
    found = {(model, d): {} for model in WEIGHT_REGRESSORS for d in sorted({dimension(result) for result in own})}
    for result in sorted(own, key=size):
        found[model_of(result), dimension(result)][size(result)] = result.metrics["trained/mse"]
    return {which: search for which, search in found.items() if search}


def smallest_size(search: Search, threshold: float, statistic: str) -> int | None:
    """The smallest size tried whose error is at most `threshold`; None if none is."""
    reached = (s for s, error in search.items() if error[statistic] is not None and error[statistic] <= threshold)
    return next(reached, None)


def own_results(results: Sequence[Result]) -> list[Result]:
    """Those of the scaling experiment, of one preset, one for each model, dimension and size: of the preset's steps."""
    return list(_cells(results).values())


def threshold_of(results: Sequence[Result]) -> float:
    """The threshold of the search. Raises UserError where results have several: their searches do not compare."""
    thresholds = {result.config["evaluation"]["threshold"] for result in own_results(results)}
    if len(thresholds) > 1:
        several = sorted(thresholds)
        raise UserError(f"results of intention/scaling have several thresholds, {several}: keep one with --results")
    return thresholds.pop()


def dimension(result: Result) -> int:
    """d, of the inputs."""
    return result.config["task"]["dimension"]


def size(result: Result) -> int:
    """s, the latent size of the model."""
    return int(result.axes["size"])


def figure3(results: Sequence[Result]) -> Table | None:
    """The smallest size for each model and dimension, by the mean error and by the median; None without results."""
    found = searches(results)
    if not found:
        return None
    threshold, dimensions = threshold_of(results), sorted({d for _, d in found})
    rows = [
        (f"{row.label}, by {statistic}", [_size(found.get((model, d)), threshold, statistic) for d in dimensions])
        for statistic in STATISTICS
        for model, row in WEIGHT_REGRESSORS.items()
    ]
    rows.append(("the paper's Figure 3", ["(curve)"] * len(dimensions)))
    own = own_results(results)
    told = facts(own, "trained/mse")
    caption = (
        f"Preset {told['preset']}, {own[0].content['steps']} steps, {seeds_of(told)}: smallest size tried, doubling "
        f"from 2, whose squared error of a weight is at most {threshold:g} (variance of a weight: 1), by the mean or "
        "the median over tasks; > s: not reached by any size up to s. Least squares itself is exact. The paper prints "
        "no numbers and no threshold for this figure."
    )
    columns = ["model", *(f"d = {d}" for d in dimensions)]
    return Table("Size that least squares takes, by dimension", columns, rows, caption, facts=told)


def figure3_steps(results: Sequence[Result]) -> Table | None:
    """The error of cells whose runs differ in their number of steps alone, of one preset; None without any."""
    preset = {result.preset for result in own_results(results)}
    of_preset = [result for result in results if result.name == _NAME and result.preset in preset]
    kept = [result for result in of_preset if result.overrides.keys() <= {"train.steps"}]
    counts = sorted({_steps(result) for result in kept})
    by_steps = [_cells([result for result in kept if _steps(result) == steps]) for steps in counts]
    runs = {which: [found.get(which) for found in by_steps] for which in _cells(kept)}
    runs = {which: own for which, own in runs.items() if sum(map(bool, own)) > 1}
    if not runs:
        return None
    rows = []
    for (model, d, s), own in sorted(runs.items(), key=lambda item: _order(*item[0])):
        errors = [run and run.metrics["trained/mse"] for run in own]
        cells = [cell(error) for error in errors for cell in (measured, median)]
        rows.append((f"{label(model)}, d = {d}, size {s}", cells))
    told = facts([run for own in runs.values() for run in own if run], "trained/mse")
    caption = (
        f"Squared error of a weight (variance 1) by the number of training steps, all else the same. Preset "
        f"{told['preset']}, {seeds_of(told)}; mean ± standard error over {drawn(told)} tasks, and their median."
    )
    columns = ["weights from", *(f"{steps} steps{of}" for steps in counts for of in ("", ", median"))]
    return Table("Least squares, by the number of steps", columns, rows, caption, facts=told)


def run_table(result: Result) -> Table:
    """One run: its error beside that of least squares itself."""
    names = {"trained/mse": label(model_of(result)), "trained/least_squares_mse": "least squares (oracle)"}
    rows = [(name, [measured(result.metrics[of]), median(result.metrics[of])]) for of, name in names.items()]
    told = facts([result], "trained/mse")
    caption = (
        f"Squared error of a weight (variance 1) over {told['n']} tasks; preset {result.preset}. The search "
        f"for a size ends at a mean of {result.config['evaluation']['threshold']:g}."
    )
    title = f"Least squares, d = {dimension(result)}, size {size(result)}"
    return Table(title, ["weights from", "mean", "median"], rows, caption, facts=told)


def _size(search: Search | None, threshold: float, statistic: str) -> Cell | str:
    if search is None:
        return Cell()
    smallest = smallest_size(search, threshold, statistic)
    return f"> {max(search)}" if smallest is None else str(smallest)


def _cells(results: Sequence[Result]) -> dict[tuple[str, int, int], Result]:
    """(model, dimension, size) -> its result, of one preset; one of the preset's own number of steps first."""
    which = lambda result: (model_of(result), dimension(result), size(result))
    return comparable(results, _NAME, which, variant=lambda result: "train.steps" in result.overrides)


def _order(model: str, d: int, s: int) -> tuple[int, int, int]:
    return list(WEIGHT_REGRESSORS).index(model), d, s


def _steps(result: Result) -> int:
    return result.content["steps"]


TABLES = {"intention/figure3": figure3, "intention/figure3_steps": figure3_steps}
