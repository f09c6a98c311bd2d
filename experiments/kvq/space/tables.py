"""The numbers of one run of kvq/space."""

from collections.abc import Sequence

from experiments.harness.results import Result
from experiments.harness.tables import Cell, Table

EXPERIMENT = "kvq/space"
CONFIGS = (EXPERIMENT,)


def op_names(result: Result) -> list[str]:
    """The operators that a run has seen, in their order."""
    return [metric.split("/")[0] for metric in result.metrics]


def run_table(results: Sequence[Result]) -> Table:
    """How far each operator's prediction is from the truth."""
    (result,) = results
    rows = []
    for op in op_names(result):
        mse, accuracy = (result.metrics.get(f"{op}/{name}") for name in ("mse", "accuracy"))
        rows.append((op, [Cell(mse["mean"]) if mse else "", Cell(accuracy["mean"]) if accuracy else ""]))
    caption = "Nothing is trained. Operators with values that are labels get the signs of the values."
    return Table("One context, every operator", ["operator", "MSE", "signs right"], rows, caption)
