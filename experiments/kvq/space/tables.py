"""The numbers of one run of kvq/space."""

from experiments.harness.results import Result
from experiments.harness.tables import Table, of_metrics

CONFIGS = ("kvq/space",)


def run_table(result: Result) -> Table:
    """How far each operator's prediction is from the truth."""
    caption = "Nothing is trained. The accuracy is that of the sign, by operators that got the signs as labels."
    return of_metrics("One context, every operator", result.metrics, caption)
