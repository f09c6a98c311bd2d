"""Table 1 of the Set Transformer, the error of the largest number of a set, from results; and the table of one run."""

from collections.abc import Mapping, Sequence

from experiments.harness.results import Result, comparable, facts, seeds_of, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured, over_seeds
from experiments.set_transformer.labels import described, label_of, own_op, variant
from experiments.set_transformer.paper_numbers import MAX, printed

CONFIG = "set_transformer/max"
CONFIGS = (CONFIG,)
_NUMBERS = {False: "numbers U({low:g}, {high:g})", True: "integers {low:g} to {high:g}"}


def table1(results: Sequence[Result]) -> Table | None:
    """Every model of Table 1: one preset, protocol and form. None without results."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    found = comparable(own, CONFIG, lambda result: result.axes["model"], variant=variant)
    return _table(found, list(MAX)) if found else None


def run_table(result: Result) -> Table:
    """One run: its error beside the paper's."""
    model = result.axes["model"]
    return _table({model: result}, [model])


def _table(found: Mapping[str, Result], models: Sequence[str]) -> Table:
    summaries = [found[model].metrics["trained/mae"] if model in found else None for model in models]
    cells, best = [over_seeds(summary, decimals=4) for summary in summaries], ""
    if len(models) > 1:
        cells, best = mark_best(cells, judged=list(map(measured, summaries))), f"; {BEST}, over sets and seeds"
    tasks = [Cell(summary["sem_of_tasks"]) if summary else Cell() for summary in summaries]
    rows = [(label_of(model), [*own, printed(MAX.get(model))]) for model, *own in zip(models, cells, tasks)]
    own = list(found.values())
    first, told = own[0], facts(own, "trained/mae")
    task = first.config["task"]
    sets = _NUMBERS[task["integers"]].format(**task)
    steps, batch = several(result.steps for result in own), first.config["train"]["batch_size"]
    caption = (
        f"{described(first)}; sets of {task['min_size']} to {task['max_size']} {sets}; {steps} steps of {batch} sets. "
        f"Mean over {seeds_of(told)} and {told['n']} sets ± standard deviation of the seeds{best}. 'of the "
        "sets': the standard error that the choice of sets leaves. The paper's numbers are of five runs of its own "
        "protocol."
    )
    columns = ["model", "mean absolute error", "of the sets", "the paper's"]
    return Table("The largest number of a set", columns, rows, caption, error="standard deviation", facts=told)


TABLES = {"set_transformer/table1": table1}
