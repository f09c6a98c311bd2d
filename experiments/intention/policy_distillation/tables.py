"""The table of policy distillation: the numbers of Figure 9 of the Intention paper."""

import functools

from experiments.harness.results import Result
from experiments.harness.tables import Table
from experiments.intention.closed_form import error_table, table_of

_WORDS = dict(
    title="Policy distillation: squared error of a coordinate of the target",
    figure="Figure 9",
    note="To predict the mean of all targets has an MSE of 1.",
)


def run_table(result: Result) -> Table:
    """One run: its error beside those of the methods that know the task."""
    return error_table([result], **_WORDS)


TABLES = {"intention/figure9": functools.partial(table_of, experiment="policy_distillation", **_WORDS)}
