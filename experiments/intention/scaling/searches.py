"""The searches for a latent size that results of the scaling experiment make up."""

from collections.abc import Sequence

from experiments.harness.errors import UserError
from experiments.harness.results import Result, comparable
from experiments.regression.labels import model_of
from kvq_jax.models import WEIGHT_REGRESSORS

STATISTICS = ("mean", "median")  # of the error over tasks

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
    """Those of the scaling experiment, of one preset, one for each model, dimension and size."""
    found = comparable(results, "intention/scaling", lambda result: (model_of(result), dimension(result), size(result)))
    return list(found.values())


def threshold_of(results: Sequence[Result]) -> float:
    """The threshold of the search. Raises UserError where results have several: their searches do not compare."""
    thresholds = {result.config["evaluation"]["threshold"] for result in own_results(results)}
    if len(thresholds) > 1:
        raise UserError(
            f"results of intention/scaling have several thresholds, {sorted(thresholds)}: keep one with --results"
        )
    return thresholds.pop()


def dimension(result: Result) -> int:
    """d, of the inputs."""
    return result.config["task"]["dimension"]


def size(result: Result) -> int:
    """s, the latent size of the model."""
    return int(result.axes["size"])
