"""The table of the generalised Kabsch task: the numbers of Figure 10 of the Intention paper."""

import functools

from experiments.harness.results import Result
from experiments.harness.tables import Table
from experiments.intention.closed_form import error_table, table_of

_WORDS = dict(
    title="Generalised Kabsch: squared error of a coordinate of a query's image",
    figure="Figure 10",
    note="The oracles fit the same noisy pairs; without noise both are exact.",
)


def run_table(result: Result) -> Table:
    """One run: its error beside those of the methods that know the task."""
    return error_table([result], **_WORDS)


TABLES = {"intention/figure10": functools.partial(table_of, experiment="kabsch", **_WORDS)}
