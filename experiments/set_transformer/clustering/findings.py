"""What the results of amortised clustering say (Set Transformer, Table 3)."""

from collections.abc import Iterable, Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid
from experiments.harness.results import Result, overridden, seeds_by_name, several
from experiments.harness.tables import Cell, measured, within_error
from experiments.set_transformer.clustering.tables import CONFIG, ORACLE_ROW, TABLES
from experiments.set_transformer.labels import label_of, own_kernels
from experiments.set_transformer.paper_numbers import CLUSTERING, ORACLE

_TABLE = "set_transformer/table3"
_HEADS = ("LL0", "LL1")
_ERRORS = 2  # joint ones: what two numbers may lie apart by chance


def published(results: Sequence[Result]) -> Iterator[Finding]:
    """What runs of the published length have, beside the paper; and the true mixtures, which prove the sampler."""
    number = Numbers(TABLES[_TABLE], [result for result in results if result.preset == "paper"])
    labels = {label_of(model): papers for model, papers in CLUSTERING.items() if model != ORACLE}
    found = number.known(labels, _HEADS[0])
    if not found:
        raise Unsaid(f"{CONFIG}: no result of preset paper")
    told, near, apart, runs = [], 0, [], []
    for name in found:
        cells, papers = [number.cell(name, head) for head in _HEADS], labels[name]
        told.append(f"{name} {_both(cells)} (the paper {_both(papers)})")
        for head, cell, paper in zip(_HEADS, cells, papers):
            if _near(cell, paper, head):
                near += 1
            else:
                apart.append(f"{name} {head} by {cell.mean - paper.mean:+.3f} ({_moves(cell.run, head)})")
        runs.append(cells[0].run)
    by_name = dict(zip(found, runs))
    yield Finding(
        f"Amortised clustering at the published protocol, {several(run.steps for run in runs)} steps "
        f"({seeds_by_name(by_name)}{overridden(by_name)}), by the log-likelihood of a point before and after a step of "
        f"EM: {'; '.join(told)}. {near} of these {near + len(apart)} numbers are within twice the joint error of the "
        "sets and the paper's runs."
    )
    if apart:
        yield Finding(f"Amortised clustering, the numbers that differ from the paper by more: {'; '.join(apart)}.")
    yield from _otherwise([result for result in results if result.preset == "paper"], number, found)
    weighed = [label_of("rff_dotprod"), label_of("rff_attsets")]
    if set(weighed) <= set(number.known(number.rows, _HEADS[0])):
        elements, features = (_both([number.cell(name, head) for head in _HEADS]) for name in weighed)
        yield Finding(
            "The paper does not print what its dot product weighs. Where it weighs whole elements "
            f"({weighed[0]}) it has {elements}; where it weighs each feature by itself ({weighed[1]}), {features}; the "
            f"paper has {_both(CLUSTERING['rff_dotprod'])}."
        )
    truth, paper = number.cell(ORACLE_ROW, _HEADS[0]), CLUSTERING[ORACLE][0]
    yield Finding(
        f"The true mixtures have {truth.text()} on our sets, {paper.mean} on the paper's.",
        abs(truth.mean - paper.mean) < 3 * truth.error,
    )


def _otherwise(results: Sequence[Result], number: Numbers, names: Iterable[str]) -> Iterator[Finding]:
    """What networks have by the protocol of the released code, and from other initial kernels."""
    own = [run for run in results if run.name == CONFIG and run.axes["size"] == "small"]
    coded = [run for run in own if run.axes["protocol"] == "code"]
    for name, run, has in _beside(coded, number, names):
        task, drop = run.config["task"], run.config["optimizer"]["decay_begin"]
        yield Finding(
            f"By the protocol of the released code ({task['min_size']} to {task['max_size']} points, one standard "
            f"deviation for both coordinates, the drop after {drop} steps) {name} {has}."
        )
    for name, run, has in _beside([run for run in own if not own_kernels(run)], number, names):
        model, papers = run.config["model"], _both(CLUSTERING[run.axes["model"]])
        yield Finding(
            f"From kernels by {model['kernel_init']} and biases by {model['bias_init']}, {name} {has}; the paper has "
            f"{papers}."
        )


def _beside(results: Sequence[Result], number: Numbers, names: Iterable[str]) -> Iterator[tuple[str, Result, str]]:
    """Row, run and 'has ..., else ...' of results that differ from those of the table in one thing."""
    if results:
        other = Numbers(TABLES[_TABLE], results)
        for name in other.known(names, _HEADS[0]):
            ours, usual = ([numbers.cell(name, head) for head in _HEADS] for numbers in (other, number))
            yield name, ours[0].run, f"has {_both(ours)}, else {_both(usual)}"


def _both(cells: Sequence[Cell]) -> str:
    return " and ".join(f"{cell.mean:.3f}" for cell in cells)


def _near(ours: Cell, paper: Cell, head: str) -> bool:
    """Whether a number is the paper's but for the choice of seeds and of sets; a cell's error is of seeds alone."""
    return within_error(measured(ours.run.metrics[f"trained/{head.lower()}"]), paper, _ERRORS)


def _moves(run: Result, head: str) -> str:
    """How far a number of a run moves by chance: from seed to seed; of one seed, while the rate is at its lowest."""
    seeds = run.metrics[f"trained/{head.lower()}"]["seeds"]
    if len(seeds) > 1:
        return f"{len(seeds)} seeds: {min(seeds):.3f} to {max(seeds):.3f}"
    drop = run.config["optimizer"]["decay_begin"]
    losses = [loss for step, loss in run.content["validation_losses"] if step > drop]
    return f"its validation loss after {drop} steps: {min(losses):.3f} to {max(losses):.3f}" if losses else "1 seed"


FINDINGS = {_TABLE: published}
