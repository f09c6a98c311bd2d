"""What the results of the largest number of a set say (Set Transformer, Table 1)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid, digits, listed
from experiments.harness.results import Result
from experiments.set_transformer.labels import label_of
from experiments.set_transformer.max.tables import table1
from experiments.set_transformer.paper_numbers import MAX

_ERROR = "mean absolute error"


def table(results: Sequence[Result]) -> Iterator[Finding]:
    """Which pooling finds the maximum, and how far apart the seeds are at the last step."""
    number, labels = Numbers(table1, results), {model: label_of(model) for model in MAX}
    found = number.known(labels.values(), _ERROR)
    order = sorted(found, key=found.get)
    averaging, able = (
        {labels[model] for model in models} for models in (("rff_mean", "rff_sum"), ("rff_max", "sab_pma"))
    )
    if not (averaging | able) <= set(found):
        raise Unsaid("no result of every model of Table 1")
    level = [name for name in order if name in averaging and number.cell(name, _ERROR).best]
    but = f"; {listed(level)} within the joint error of the best" if level else ""
    yield Finding(
        f"The largest of up to ten numbers between 0 and 100, by its mean absolute error: "
        f"{listed([f'{name} {digits(found[name])}' for name in order])}. As in the paper, max pooling and attention "
        f"have less than sums and means in the mean over seeds{but}.",
        max(found[name] for name in able) < min(found[name] for name in averaging),
    )
    for model in ("rff_max", "sab_pma"):
        yield from _spread(model, number, results)


def _spread(model: str, number: Numbers, results: Sequence[Result]) -> Iterator[Finding]:
    """How far apart the seeds of a model end at the published steps and rate, and with a rate that falls to 0."""
    name, paper = label_of(model), MAX[model]
    run = number.cell(name, _ERROR).run
    ends = run.metrics["trained/mae"]["seeds"]
    if run.preset != "paper" or len(ends) == 1:
        return
    yield Finding(
        f"At the published number of steps and a constant rate the {len(ends)} seeds of {name} end at "
        f"{digits(min(ends))} to {digits(max(ends))}, further apart than the paper's five, "
        f"{digits(paper.mean)} ± {digits(paper.error)}.",
        max(ends) - min(ends) > paper.error,
    )
    quick = Numbers(table1, [result for result in results if result.preset == "quick"])
    mean, run = quick(name, _ERROR), quick.cell(name, _ERROR).run
    ends = run.metrics["trained/mae"]["seeds"]
    yield Finding(
        f"That is the constant rate: where it falls to 0, {run.steps} steps bring {len(ends)} seeds of {name} to "
        f"{digits(mean)} in the mean, {digits(min(ends))} to {digits(max(ends))}.",
        run.config["optimizer"]["schedule"] == "cosine" and max(ends) < paper.mean,
    )


FINDINGS = {"set_transformer/table1": table}
