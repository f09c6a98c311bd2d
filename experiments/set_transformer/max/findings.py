"""What the results of the largest number of a set say (Set Transformer, Table 1)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid, digits, listed
from experiments.harness.results import Result
from experiments.set_transformer.labels import label_of
from experiments.set_transformer.max.tables import table1
from experiments.set_transformer.paper_numbers import MAX


def table(results: Sequence[Result]) -> Iterator[Finding]:
    """Which pooling finds the maximum, and how far apart the seeds are at the last step."""
    number = Numbers(table1, results)
    error, labels = "mean absolute error", {model: label_of(model) for model in MAX}
    found = number.known(labels.values(), error)
    order = sorted(found, key=found.get)
    averaging, able = (
        {labels[model] for model in models} for models in (("rff_mean", "rff_sum"), ("rff_max", "sab_pma"))
    )
    if not (averaging | able) <= set(found):
        raise Unsaid("no result of every model of Table 1")
    yield Finding(
        f"The largest of up to ten numbers between 0 and 100, by its mean absolute error: "
        f"{listed([f'{name} {digits(found[name])}' for name in order])}. As in the paper, max pooling and attention "
        "find it better than sums and means.",
        max(found[name] for name in able) < min(found[name] for name in averaging),
    )
    model = "sab_pma"
    run = number.cell(labels[model], error).run
    seeds = run.metrics["trained/mae"]["seeds"]
    if run.preset == "paper" and len(seeds) > 1:
        paper = MAX[model]
        yield Finding(
            f"At the published number of steps and a constant rate the {len(seeds)} seeds of {labels[model]} end at "
            f"{digits(min(seeds))} to {digits(max(seeds))}, further apart than the paper's five, "
            f"{digits(paper.mean)} ± {digits(paper.error)}.",
            max(seeds) - min(seeds) > paper.error,
        )


FINDINGS = {"set_transformer/table1": table}
