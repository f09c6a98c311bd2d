"""The numbers of one run of intention/untrained."""

from collections.abc import Sequence

from experiments.harness.results import Result
from experiments.harness.tables import Table, of_metrics

CONFIGS = ("intention/untrained",)


def run_table(results: Sequence[Result]) -> Table:
    """What one run measured: for Figure 4 Pearson's r, for 5 the slowdown, for 15 the error of the closed form."""
    (result,) = results
    caption = f"Nothing is trained. Preset {result.preset}, on {result.content['device']}."
    return of_metrics(f"Untrained operators: Figure {result.axes['figure']}", result.metrics, caption)
