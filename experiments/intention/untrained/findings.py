"""What the untrained operators show (Intention paper, Figures 4 and 5)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Unsaid
from experiments.harness.results import Result
from experiments.intention.untrained.tables import of_number


def figure4(results: Sequence[Result]) -> Iterator[Finding]:
    """The correlation of predictions with the truth."""
    mean = _means(results, "4")
    r = {op: [mean(f"{setting}/{op}/r") for setting in ("interpolation", "extrapolation")] for op in _OPS}
    yield Finding(
        "Untrained, on linear regression, Intention's predictions correlate with the truth by "
        f"{r['intention'][0]:.3f} inside and {r['intention'][1]:.3f} outside the range of the context, attention's by "
        f"{r['softmax'][0]:.2f} and {r['softmax'][1]:.2f}.",
        min(r["intention"]) > 0.999 > 0.9 > max(r["softmax"]),
    )


def figure5(results: Sequence[Result]) -> Iterator[Finding]:
    """The price of Intention in time."""
    of_form = _means(results, "5", "median")
    ours, paper = of_form("intention/slowdown"), of_form("inverse/slowdown")
    yield Finding(
        f"Intention takes {ours:.2f} times as long as attention (the median over sizes and repetitions), with an "
        f"explicit inverse, as the paper writes it, {paper:.2f} times.",
        ours < paper,
    )


_OPS = ("softmax", "intention")


def _means(results: Sequence[Result], number: str, statistic: str = "mean"):
    found = of_number(results, number)
    if found is None:
        raise Unsaid(f"no result of intention/untrained with figure={number}")
    return lambda metric: found.metrics[metric][statistic]


FINDINGS = {"intention/figure4": figure4, "intention/figure5": figure5}
