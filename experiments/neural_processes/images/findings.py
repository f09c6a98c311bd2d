"""What the results of image completion say (CMANP paper, Table 3)."""

from collections.abc import Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, digits, listed, no_better_than
from experiments.harness.results import Result, several
from experiments.harness.tables import within_error
from experiments.neural_processes.images.tables import chosen_results, operators, table3
from experiments.neural_processes.likelihoods import log_likelihood
from kvq_jax.models import MODELS, family

_SEEN, _UNSEEN = "EMNIST seen", "EMNIST unseen"


def emnist(results: Sequence[Result]) -> Iterator[Finding]:
    """Digits and letters: the order of the models, seen and unseen, more pixels, and models that look at nothing."""
    number = Numbers(table3, results)
    names = [row.label for row in family("neural_process").values() if row.cls.likelihood == "marginal"]
    seen, unseen = number.known(names, _SEEN), number.known(names, _UNSEEN)
    order = sorted(seen, key=seen.get, reverse=True)
    yield Finding(
        f"Completing digits of EMNIST, on which they were trained for {number.steps(order, _SEEN)} steps, and "
        "letters, which they never saw: "
        f"{listed([f'{name} {digits(seen[name])} and {digits(unseen[name])}' for name in order])}; unseen classes are "
        "harder for each of them.",
        all(unseen[name] < seen[name] for name in order),
    )
    compared = ("TNP-D", "CMANP", "CNP")
    steps = listed([number.cell(name, _SEEN).run.steps for name in compared])
    yield Finding(
        f"TNP-D and CMANP are above CNP, as in the paper, after {steps} steps.",
        min(number("TNP-D", _SEEN), number("CMANP", _SEEN)) > number("CNP", _SEEN),
    )
    level = number("Gaussian of each pixel", _SEEN)
    above = [name for name in order if seen[name] > level]
    yield Finding(
        f"A Gaussian of each pixel, which looks at no pixel of the image, has {digits(level)} on the digits; "
        f"{listed(above)} have passed it after these short runs, the others have not.",
        0 < len(above) < len(order),
    )
    yield from _more_pixels(results, "emnist")


def faces(results: Sequence[Result]) -> Iterator[Finding]:
    """CelebA at 32x32, of which a part was at hand: models beside a Gaussian process fitted to the observed pixels."""
    number, head = Numbers(table3, results), "CelebA 32"
    names = [row.label for row in family("neural_process").values() if row.cls.likelihood == "marginal"]
    found, smooth = number.known(names, head), number("Gaussian process", head)
    order = sorted(found, key=found.get, reverse=True)
    cells, ceiling = {name: number.cell(name, head) for name in order}, number.cell("Gaussian process", head)
    level = [name for name in order if within_error(cells[name], ceiling)]
    data = several(cell.run.content["facts"]["data"] for cell in cells.values())
    above = [name for name in order if found[name] > smooth and name not in level]
    beside = f", {listed(level)} within the joint error of it" if level else ""
    yield Finding(
        f"On faces of 32x32 pixels, {data}, after {number.steps(order, head)} steps, "
        f"{listed([f'{name} is at {digits(found[name])}' for name in order])}; a Gaussian process "
        f"fitted to the observed pixels, which knows that images are smooth and nothing of faces, at {digits(smooth)}: "
        f"{listed(above)} above it after these short runs{beside}, the others below.",
        0 < len(above) < len(order) - len(level),
    )
    yield from _more_pixels(results, "celeba32")


def _more_pixels(results: Sequence[Result], data: str) -> Iterator[Finding]:
    """Which models gain from more pixels by more than the errors, in every part; most should."""
    gain, stay, parts = [], [], ("seen", "unseen") if data == "emnist" else ("test",)
    cells = {model: result for (model, its), result in chosen_results(results).items() if its == data}
    for model, result in cells.items():
        counts = result.config["evaluation"]["counts"]
        ends = [
            [log_likelihood(result, f"{part}/target@{count}") for count in (counts[0], counts[-1])] for part in parts
        ]
        gains = all(many.mean - few.mean > few.error + many.error for few, many in ends)
        (gain if gains else stay).append(MODELS[model].label)
    where = "in one part or both" if len(parts) > 1 else "or below 0"
    but = f"; the gain of {listed(stay)} is within the errors, {where}" if stay else ""
    yield Finding(
        f"More observed pixels, more likelihood: from {counts[0]} to {counts[-1]} pixels on {data}, for {listed(gain)}"
        f"{but}.",
        len(gain) > len(stay),
    )


def attention(results: Sequence[Result]) -> Iterator[Finding]:
    """KVQ space on images: the operators over the context, in order, beside softmax."""
    number = Numbers(operators, results)
    for head in number.columns:
        found = number.known(number.rows, head)
        if len(found) < 2 or "softmax" not in found:
            continue
        yield Finding(
            f"{head}, log-likelihood per target pixel by the operator over the context: "
            f"{number.ranking('softmax', head, found)}."
        )
        if "uniform" in found:
            yield no_better_than(number, "uniform", "a plain mean of the context (uniform)", head)


FINDINGS = {"cmanp/table3_emnist": emnist, "cmanp/table3_celeba32": faces, "kvq/images": attention}
