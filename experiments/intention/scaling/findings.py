"""What the search for the size that least squares takes says (Intention paper, Figure 3)."""

import math
from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid, digits, listed
from experiments.harness.results import Result
from experiments.intention.scaling.tables import STATISTICS, figure3, figure3_steps
from kvq_jax.models import WEIGHT_REGRESSORS


def sizes(results: Sequence[Result]) -> Iterator[Finding]:
    """The smallest size of each model, by dimension: by the mean error of tasks, and by the median."""
    number = Numbers(figure3, results)
    for statistic in STATISTICS:
        found = {row.label: [_size(number, row.label, statistic, d) for d in number.columns] for row in _models()}
        told = "; ".join(f"{name} {', '.join(of_model)}" for name, of_model in found.items())
        ranks = dict(zip(number.columns, zip(*(map(_rank, sizes) for sizes in found.values()))))
        reached = [of_all for of_all in ranks.values() if min(of_all) < math.inf]
        nowhere = [column for column, of_all in ranks.items() if min(of_all) == math.inf]
        yield Finding(
            f"The size of layers that least squares takes, by the {statistic} error of tasks, at {number.columns[0]} "
            f"to {number.columns[-1].split()[-1]}: {told}. Where one of them gets there, Intention never needs more "
            f"than another, as in the paper{f'; at {listed(nowhere)} none does' if nowhere else ''}.",
            bool(reached) and all(of_all[0] == min(of_all) for of_all in reached),
        )


def longer(results: Sequence[Result]) -> Iterator[Finding]:
    """What more steps do where the search did not end."""
    number = Numbers(figure3_steps, results)
    few, *_, many = (column for column in number.columns if not column.endswith("median"))
    pairs = {row: (number(row, few), number(row, many)) for row in number.rows}
    told = "; ".join(f"{row}: {digits(before)} and {digits(after)}" for row, (before, after) in pairs.items())
    yield Finding(
        "The sizes are those of short runs: longer ones err less at the same size. Error of a weight after "
        f"{few} and {many}: {told}.",
        all(after < before for before, after in pairs.values()),
    )


def _models() -> list:
    """Intention, which is compared, first."""
    return [WEIGHT_REGRESSORS[name] for name in ("intention", "attention", "neural_process", "mlp")]


def _size(number: Numbers, name: str, statistic: str, column: str) -> str:
    cell = number.cell(f"{name}, by {statistic}", column)
    if not isinstance(cell, str):
        raise Unsaid(f"no size of {name} at {column}")
    return cell


def _rank(size: str) -> float:
    return math.inf if size.startswith(">") else float(size)


FINDINGS = {"intention/figure3": sizes, "intention/figure3_steps": longer}
