"""What the results of classes of point clouds say (Set Transformer, Table 4)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, listed
from experiments.harness.results import Result
from experiments.harness.tables import Cell, within_error
from experiments.set_transformer.clouds.tables import POINTS, head, table4
from experiments.set_transformer.labels import label_of
from experiments.set_transformer.paper_numbers import CLOUDS

_PAIRS = {"rff_pma": "rff_max", "isab16_pma": "isab16_max"}  # PMA -> the paper's pooling behind the same encoder


def pooling(results: Sequence[Result]) -> Iterator[Finding]:
    """Whether attention pools better than the maximum, behind either encoder, beside the paper."""
    number, told, ours, papers = Numbers(table4, results), [], [], []
    for attention, largest in _PAIRS.items():
        names = label_of(attention), label_of(largest)
        cells = [tuple(number.measured(name, head(points)) for name in names) for points in POINTS]
        ours += map(_ahead, *zip(*cells))
        papers += [_ahead(CLOUDS[attention][points], CLOUDS[largest][points]) for points in POINTS]
        told.append(f"{names[0]} {listed([f'{own.mean:.0f} ({other.mean:.0f})' for own, other in cells])}")
    run = number.cell(label_of("isab16_pma"), head(POINTS[0])).run
    steps = listed([number.steps(map(label_of, (*_PAIRS, *_PAIRS.values())), head(points)) for points in POINTS])
    yield Finding(
        f"Classes of point clouds ({run.content['facts']['data']}, {steps} steps for {listed(list(map(str, POINTS)))} "
        f"points), the accuracy in percent of attention as pooling, and of the maximum in its place: "
        f"{'; '.join(told)}. By more than the joint error attention is ahead in {ours.count(1)} and the maximum in "
        f"{ours.count(-1)} of these {len(ours)} pairs; in the paper, on ModelNet40, in {papers.count(1)} and "
        f"{papers.count(-1)}."
    )


def _ahead(own: Cell, other: Cell) -> int:
    """Whether `own` is ahead, 1, or `other`, -1, by more than their joint error."""
    return 0 if within_error(own, other) else 1 if own.mean > other.mean else -1


FINDINGS = {"set_transformer/table4": pooling}
