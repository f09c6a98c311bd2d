"""What the Set Transformer with other operators says: which members of KVQ space compare, count and cluster. Ours."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid, listed
from experiments.harness.results import Result, facts, seeds_of
from experiments.set_transformer.operators.tables import COLUMNS, OWN, operators

_TOLD = ("maximum, MAE", "counting, accuracy", "clustering, LL0")
_FAR = 1e6  # a number beyond it has no place in a ranking


def beside_softmax(results: Sequence[Result]) -> Iterator[Finding]:
    """The operators in order, for each task that softmax and another one were tried on."""
    number = Numbers(operators, results)
    known = {head: number.known(number.rows, head) for head in _TOLD}
    tried = {head: found for head, found in known.items() if OWN in found and len(found) > 1}
    if not tried:
        raise Unsaid("no result of softmax and another operator on one task")
    for head, found in tried.items():
        column = COLUMNS[head]
        told = facts([number.cell(op, head).run for op in found], f"trained/{column.metric}")
        far = [op for op, mean in found.items() if abs(mean) >= _FAR]
        near = [op for op in found if op not in far]
        beyond = f"; {listed(far)} ended beyond {_FAR:.0f}" if far else ""
        yield Finding(
            f"The Set Transformer by the operator of its blocks, {head}, preset {told['preset']}, {seeds_of(told)}: "
            f"{number.ranking(OWN, head, near, column.smaller)}{beyond}."
        )


FINDINGS = {"set_transformer/operators": beside_softmax}
