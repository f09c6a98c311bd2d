"""What the results of counting unique characters say (Set Transformer, Table 2)."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import gammaln

from experiments.harness.findings import Finding, Numbers, Unsaid, listed
from experiments.harness.results import Result, overridden, seeds_by_name, several
from experiments.harness.tables import Cell, within_error
from experiments.set_transformer.counting.tables import CONFIG, table2
from experiments.set_transformer.labels import label_of
from experiments.set_transformer.paper_numbers import COUNTING

_STEPS = 200_000  # of the paper
_ERRORS = 2  # joint ones: what two numbers may lie apart by chance


def published(results: Sequence[Result]) -> Iterator[Finding]:
    """What networks of the published width have, beside the paper; and which of them have learnt nothing."""
    number = Numbers(table2, [result for result in results if result.preset == "paper"])
    papers = {label_of(model): paper for model, paper in COUNTING.items()}
    cells = {name: number.cell(name, "accuracy") for name in number.known(papers, "accuracy")}
    if not cells:
        raise Unsaid(f"{CONFIG}: no result of preset paper")
    runs = {name: cell.run for name, cell in cells.items()}
    told = [f"{name} {cell.mean:.3f} (the paper {papers[name].mean:.3f})" for name, cell in cells.items()]
    steps = several(run.steps for run in runs.values())
    yield Finding(
        f"Counting unique characters ({seeds_by_name(runs)}{overridden(runs)}), the share of sets that networks of the "
        f"published width count right after {steps} steps, the paper's after {_STEPS}: {'; '.join(told)}."
    )
    likely = {name: (number.cell(name, "log-likelihood"), _of_one_rate(run)) for name, run in runs.items()}
    alike = [name for name, cells in likely.items() if within_error(*cells, _ERRORS)]
    if alike:
        numbers = [f"{own.mean:.3f} for {one.mean:.3f}" for own, one in map(likely.get, alike)]
        yield Finding(
            f"{listed(alike)} {'has' if len(alike) == 1 else 'have'} not begun to count: the numbers are as likely as "
            f"under one rate for all sets, {listed(numbers)}."
        )


def _of_one_rate(run: Result) -> Cell:
    """The log-likelihood of the numbers in the examples of a run, under Poisson's distribution with their mean."""
    number = np.asarray(run.examples["truth"], float)
    values = number * np.log(number.mean()) - number.mean() - gammaln(number + 1)
    return Cell(values.mean(), values.std(ddof=1) / len(values) ** 0.5)


FINDINGS = {"set_transformer/table2": published}
