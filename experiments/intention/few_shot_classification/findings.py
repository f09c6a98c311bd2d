"""What the results of few-shot classification say (Intention paper, Tables 1 and 2)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, listed
from experiments.harness.results import Result
from experiments.intention.few_shot_classification.tables import TABLES

_MODELS = ("Intention", "Prototypical networks", "MAML", "Attention", "Neural Process")


def table1(results: Sequence[Result]) -> Iterator[Finding]:
    """The order of the models, ours and the paper's."""
    number = Numbers(TABLES["intention/table1"], results)
    ours = {name: number(name, "ours") for name in _MODELS}
    way = number.cell("Intention", "ours").run.config["task"]["way"]
    told = listed([f"{name} {percent:.1f} %" for name, percent in sorted(ours.items(), key=lambda row: -row[1])])
    first, papers = number.first("ours", _MODELS), number.known(_MODELS, "the paper's")
    beside = [name for name in first if name != "Intention"]
    place = f"Intention, alone at the top in the paper, is there beside {listed(beside)}, within the joint error"
    yield Finding(
        f"Few-shot classification of small images, of which there are few, with the weights of the best validation "
        f"loss: {told}; chance is {100 / way:g} %. {place if beside else 'Intention is first, as in the paper'}.",
        "Intention" in first and max(papers, key=papers.get) == "Intention",
    )
    steps = number.cell("Neural Process", "our steps")
    yield Finding(
        f"In the paper the neural process ({papers['Neural Process']:.1f}) is above attention "
        f"({papers['Attention']:.1f}); here it is below; its best step was {steps}.",
        ours["Neural Process"] < ours["Attention"] and papers["Neural Process"] > papers["Attention"],
    )


def table2(results: Sequence[Result]) -> Iterator[Finding]:
    """The larger encoder beside the smaller, and whether it had learnt to the end."""
    number = Numbers(TABLES["intention/table2"], results)
    rows = ("Intention", "Intention, Gaussian kernel", "Intention, within-class scatter (the paper's QDA)")
    ours = {row: number(row, "ours") for row in rows}
    steps = {row: number.cell(row, "our steps").split(" of ") for row in rows}
    going = [row for row, (chosen, all_steps) in steps.items() if chosen == all_steps]
    yield Finding(
        f"With a quarter of the ResNet-12's width: {'; '.join(f'{row} {ours[row]:.1f} %' for row in rows)}. The best "
        f"step of {len(going)} of the {len(rows)} was their last.",
        bool(going),
    )


FINDINGS = {"intention/table1": table1, "intention/table2": table2}
