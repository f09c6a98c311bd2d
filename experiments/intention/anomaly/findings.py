"""What the results of set anomaly detection say (Intention paper, Table 3)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers
from experiments.harness.results import Result
from experiments.intention.anomaly.tables import MODELS, PAPER, table3


def anomalies(results: Sequence[Result]) -> Iterator[Finding]:
    """Depth, and the order of the models."""
    number = Numbers(table3, results)
    one, four = ({model: number(name, layers) for model, name in MODELS.items()} for layers in ("1 layer", "4 layers"))
    gains = [four[model] - one[model] for model in MODELS]
    deeper = sum(deep > flat for flat, deep in PAPER.values())
    yield Finding(
        f"Finding the image of another class: four layers are better than one for each of the {len(MODELS)} models, by "
        f"{min(gains):.1f} to {max(gains):.1f} points; in the paper for {deeper}.",
        min(gains) > 0,
    )
    first = max(MODELS, key=four.get)
    size = number.cell(MODELS[first], "4 layers").run.config["task"]["set_size"]
    papers = sorted(MODELS, key=lambda model: PAPER[model][-1], reverse=True)
    yield Finding(
        f"The order of the models is another than in the paper, whose features are other ones: {MODELS[first]} is "
        f"first here ({four[first]:.1f} %; chance is {100 / size:g}), and at place {papers.index(first) + 1} of "
        f"{len(papers)} in the paper, where all are within {PAPER[papers[0]][-1] - PAPER[papers[-1]][-1]:.1f} points "
        "of each other.",
        first != papers[0],
    )


FINDINGS = {"intention/table3": anomalies}
