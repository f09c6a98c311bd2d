"""The numbers of one run of intention/untrained."""

from collections.abc import Sequence

from experiments.harness.results import Result, comparable
from experiments.harness.tables import Table, of_metrics

CONFIGS = ("intention/untrained",)


def run_table(result: Result) -> Table:
    """What one run measured: for Figure 4 Pearson's r, for 5 the slowdown, for 15 the error of the closed form."""
    caption = f"Nothing is trained. Preset {result.preset}, on {result.content['device']}."
    return of_metrics(f"Untrained operators: Figure {result.axes['figure']}", result.metrics, caption)


def of_number(results: Sequence[Result], number: str) -> Result | None:
    """The result that a figure shows, '4', '5' or '15'; None without one."""
    own = [result for result in results if result.name == CONFIGS[0] and result.axes["figure"] == number]
    return comparable(own, CONFIGS[0], lambda result: number).get(number)
