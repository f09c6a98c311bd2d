"""What the results of event sequences say (CMANP paper, Tables 5 and 6)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid, digits, listed
from experiments.harness.results import Result
from experiments.point_processes.events import tables
from kvq_jax.models import EVENT_MODELS

_WITHIN = 0.05  # nats per event of the truth


def known(results: Sequence[Result]) -> Iterator[Finding]:
    """How near the models come to processes whose likelihood is known."""
    number = Numbers(tables.processes, results)
    labels = [row.label for row in EVENT_MODELS.values()]
    for column in number.columns:
        found = number.known(labels, column)
        if not found:
            raise Unsaid(f"no model on {column}")
        near = [label for label, gap in found.items() if gap < _WITHIN]
        worst = max(found, key=found.get)
        yield Finding(
            f"Events of a process that is known ({column}): {len(near)} of {len(found)} models come within {_WITHIN} "
            f"nats per event of the process's own likelihood; {worst} lacks {digits(found[worst])}."
        )


def memory(results: Sequence[Result]) -> Iterator[Finding]:
    """Whether constant memory costs likelihood or accuracy on the paper's data."""
    number = Numbers(tables.TABLES["cmanp/table6"], results)
    names = [EVENT_MODELS[model].label for model in ("thp_mixture", "cmhp")]
    nll, accuracy, papers = (
        [number(name, column) for name in names] for column in ("Mooc NLL", "Mooc accuracy", "Mooc accuracy, paper")
    )
    data = tables.data_of(number.cell(names[0], "Mooc NLL").run)
    told = [f"{name} {digits(of, 3)} nats and {100 * right:.0f} %" for name, of, right in zip(names, nll, accuracy)]
    does = "has less accuracy" if accuracy[1] < accuracy[0] else "does not have less accuracy"
    yield Finding(
        f"Next events of {data}, negative log-likelihood per event and accuracy of the mark: {listed(told)}. With "
        f"constant memory the model {does}; in the paper it is {100 * papers[1]:.1f} against {100 * papers[0]:.1f} %."
    )


FINDINGS = {"events/processes": known, "cmanp/table6": memory}
