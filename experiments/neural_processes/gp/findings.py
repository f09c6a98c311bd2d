"""What the results of one-dimensional meta-regression say (CMANP paper, Table 4; ANP slides)."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from experiments.harness.findings import Finding, Numbers, digits, listed
from experiments.harness.results import Result, facts, seeds_by_name, seeds_in, several, steps_by_name
from experiments.neural_processes import attention_results
from experiments.neural_processes.gp.tables import (
    HEADLINE,
    KERNELS,
    PUBLISHED,
    SAME,
    attention,
    chosen_results,
    row_label,
    table4,
)
from experiments.neural_processes.likelihoods import LIKELIHOODS, kind
from kvq_jax.models import MODELS, family

_PAPER_STEPS, _NEAR = 100_000, 0.05


def short(results: Sequence[Result]) -> Iterator[Finding]:
    """How far short runs have come, in the paper's order of likelihoods, and what they lack to the true posterior."""
    own = [result for result in results if result.preset != "paper"]
    number, head = Numbers(table4, own), KERNELS["rbf"]
    cells = {model: result for (model, form), result in chosen_results(own).items() if form == PUBLISHED}
    for likelihood, words in LIKELIHOODS.items():
        names = [row.label for model, row in family("neural_process").items() if kind(model) == likelihood]
        found, oracle = number.known(names, head), number(f"oracle, {likelihood}", head)
        if not found:
            continue
        order = sorted(found, key=found.get, reverse=True)
        yield Finding(
            f"Of functions of a Gaussian process (RBF) the true posterior predicts {words} with a log-likelihood of "
            f"{digits(oracle, 3)}. After {number.steps(found, head)} steps the models are below it: "
            f"{listed([f'{name} {digits(found[name])}' for name in order])}.",
            max(found.values()) < oracle,
        )
    papers = number.known([MODELS[model].label for model in cells], f"{head}, paper")
    if papers and max(result.content["steps"] for result in cells.values()) < _PAPER_STEPS:
        below = [name for name, mean in papers.items() if number(name, head) < mean]
        yield Finding(
            f"The paper trains for {_PAPER_STEPS} steps: these runs say who learns quickly, not who wins; "
            f"{len(below)} of {len(papers)} models are below the paper's numbers.",
            len(below) == len(papers),
        )


def published(results: Sequence[Result]) -> Iterator[Finding]:
    """What runs of the published length have, beside the paper."""
    own = [result for result in results if result.preset == "paper"]
    number, chosen = Numbers(table4, own), chosen_results(own)
    cells = {model: result for (model, form), result in chosen.items() if form == PUBLISHED}
    yield from _beside_paper(number, {MODELS[model].label: result for model, result in cells.items()})
    yield from _by_intention(number, chosen)
    yield from _floors(number, chosen)
    yield from _changed(number, chosen)


def _beside_paper(number: Numbers, trained: Mapping[str, Result]) -> Iterator[Finding]:
    """The models, by the names of their rows, and the paper's numbers: all, how far apart, and which farther."""
    heads = [head for head in KERNELS.values() if f"{head}, paper" in number.columns]
    papers = {head: number.known(trained, f"{head}, paper") for head in heads}
    for likelihood, words in LIKELIHOODS.items():
        judged = {row: result for row, result in trained.items() if kind(result.axes["model"]) == likelihood}
        told = []
        for row in sorted(judged, key=lambda row: number(row, heads[0]), reverse=True):
            ours = listed([number.cell(row, head).text() for head in heads])
            beside = [f"{of_paper[row]:.2f}" for of_paper in papers.values() if row in of_paper]
            told.append(f"{row} {ours}" + (f" (the paper {listed(beside)})" if beside else ""))
        if told:
            steps = several(result.steps for result in judged.values())
            yield Finding(
                f"By the published protocol, {steps} steps, {words}, {listed(heads)}, over "
                f"{facts(judged.values(), HEADLINE)['n']} functions, {seeds_by_name(judged)}: {'; '.join(told)}."
            )
    apart = {(row, head): number(row, head) - paper for head in heads for row, paper in papers[head].items()}
    if apart:
        far = {cell: less for cell, less in apart.items() if abs(less) > _NEAR}
        yield Finding(
            f"{len(apart) - len(far)} of {len(apart)} numbers of these models are within {_NEAR} of the paper's; ours "
            f"less the paper's are {min(apart.values()):+.3f} to {max(apart.values()):+.3f}."
        )
        for row in dict.fromkeys(row for row, _ in far):
            less = listed([f"{far[row, head]:+.3f} on {head}" for head in heads if (row, head) in far])
            yield Finding(f"Farther from the paper: {row}, {less}{_rise(trained[row])}.")


def _rise(result: Result) -> str:
    """'; its validation loss went from ... to ...': the greatest rise within a training. '' where there was none."""
    losses = result.content["validation_losses"]
    pairs = [(before, after) for at, before in enumerate(losses) for after in losses[at + 1 :]]
    before, after = max(pairs, key=lambda pair: pair[1][1] - pair[0][1], default=((0, 0), (0, 0)))
    if after[1] <= before[1]:
        return ""
    (start, low), (end, high) = before, after
    return f"; its validation loss went from {low:.3f} after {start} steps to {high:.3f} after {end}"


def _by_intention(number: Numbers, cells: Mapping[tuple[str, str], Result]) -> Iterator[Finding]:
    """What models have that read the context by Intention, less what those have that they are made from.

    Both in the same form, such as without the floor of their deviation. `cells` are those of the table.
    """
    told, trained = [], []
    of_intention = [(model, form) for model, form in cells if model.startswith("intention_")]
    pairs = [((model, form), (model.removeprefix("intention_"), form)) for model, form in of_intention]
    for pair in (pair for pair in pairs if pair[1] in cells):
        trained += [cells[cell] for cell in pair]
        one, other = (cells[cell].config["model"] for cell in pair)
        changed = sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key) and key != "name")
        labels = [row_label(*cell) for cell in pair]
        less = [f"{number(labels[0], head) - number(labels[1], head):+.3f} on {head}" for head in KERNELS.values()]
        told.append(f"{' less '.join(labels)}, from which it differs in {listed(changed)}, {listed(less)}")
    if told:
        seeds = seeds_in(trained)
        yield Finding(f"The context read by Intention, each target alone, {seeds}: {'; '.join(told)}.")


def _floors(number: Numbers, cells: Collection[tuple[str, str]]) -> Iterator[Finding]:
    """What models gain that take TNP-D's exponential for their deviation with a floor, as a share of what they lack.

    And on the kernels that none was trained on. `cells` are the models and forms of the table.
    """
    head, *unseen = KERNELS.values()
    told, elsewhere = [], []
    for model in (model for model, form in cells if form == SAME and (model, PUBLISHED) in cells):
        with_floor, without = (row_label(model, form) for form in (PUBLISHED, SAME))
        published, same = number.cell(with_floor, head), number.cell(without, head)
        share = (same.mean - published.mean) / (number("TNP-D", head) - published.mean)
        floor = published.run.config["model"]["std_floor"]
        told.append(
            f"{with_floor} {published.text()} with its floor of {floor} and {same.text()} without, "
            f"{share:.0%} of what it lacks to TNP-D"
        )
        gains = [f"{number(without, other) - number(with_floor, other):+.3f} on {other}" for other in unseen]
        elsewhere.append(f"{with_floor} {listed(gains)}")
    if told:
        yield Finding(
            f"The exponential of TNP-D in place of a standard deviation with a floor, {head}: {'; '.join(told)}."
        )
        yield Finding(f"On kernels that none was trained on, without the floor less with it: {'; '.join(elsewhere)}.")


def _changed(number: Numbers, cells: Mapping[tuple[str, str], Result]) -> Iterator[Finding]:
    """What models have with one thing changed (tables.form), beside the published run and the paper."""
    told, head = [], KERNELS["rbf"]
    for model, form in (cell for cell in cells if cell[1] not in (PUBLISHED, SAME)):
        beside = []
        if (model, PUBLISHED) in cells:
            latents = cells[model, PUBLISHED].config["model"].get("num_latents")
            others = f", with {latents} latents," if latents else ""
            beside.append(f"as published{others} {number.cell(row_label(model, PUBLISHED), head).text()}")
        papers = number.known([MODELS[model].label], f"{head}, paper")
        beside += [f"the paper {paper}" for paper in papers.values()]
        told.append(f"{row_label(model, form)}, {number.cell(row_label(model, form), head).text()} ({listed(beside)})")
    if told:
        yield Finding(f"With one thing changed from the published training, {head}: {'; '.join(told)}.")


def kinds(results: Sequence[Result]) -> Iterator[Finding]:
    """Which attention serves ANP on the functions that the slides draw, and on those of another kernel."""
    number, cells = Numbers(attention, results), attention_results.of_anp(results, "gp")
    heads, told = list(KERNELS.values()), []
    for head in (heads[0], heads[-1]):
        found = number.known(cells, head)
        order = sorted(found, key=found.get, reverse=True)
        told.append(f"{head}: {listed([f'{name} {number.cell(name, head).text()}' for name in order])}")
    first = next(iter(cells.values()))
    yield Finding(
        f"ANP by what it reads the context with, protocol {first.axes['protocol']}, {steps_by_name(cells)}, "
        f"{seeds_by_name(cells)}, log-likelihood of each target alone, {'; '.join(told)}. It was trained on {heads[0]}."
    )
    trained = number.known(cells, heads[0])
    yield Finding(
        f"On the kernel of the training, {heads[0]}, multi-head attention is the best of them alone, and the mean of "
        "NP (uniform) the worst.",
        number.best("multihead", heads[0], cells) and min(trained, key=trained.get) == "uniform",
    )


FINDINGS = {"cmanp/table4": published, "cmanp/table4_quick": short, "anp/functions": kinds}
