"""What the results of the generalised Kabsch task say (Intention paper, Figure 10)."""

import functools
from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, digits
from experiments.harness.results import Result
from experiments.intention.closed_form import at_full_length, only_intention
from experiments.intention.kabsch.tables import TABLES
from experiments.regression.labels import METHODS

_TABLE = TABLES["intention/figure10"]
_ABOUT = ("the generalised Kabsch task (a similarity map from five noisy pairs)", _TABLE)


def kabsch(results: Sequence[Result]) -> Iterator[Finding]:
    """Intention against the baselines, and against least squares that is told the form of the answer."""
    yield from only_intention(*_ABOUT, results)
    number = Numbers(_TABLE, results)
    ours, told = number("Intention", "MSE"), number(METHODS["affine"], "MSE")
    yield Finding(
        f"That is {ours / told:.1f} times the error of affine least squares, {digits(told)}, which is told the form of "
        "the answer.",
        told < ours < 2 * told,
    )


FINDINGS = {"intention/figure10": kabsch, "intention/figure10_paper": functools.partial(at_full_length, *_ABOUT)}
