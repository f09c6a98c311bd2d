"""Table 4 of the Set Transformer, accuracy of classes of point clouds by their number of points, from results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.harness.results import Result, comparable, drawn, facts, seeds_of, several, usual_and_others
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.set_transformer.labels import described, label_of, own_op, variant
from experiments.set_transformer.paper_numbers import CLOUDS, QUOTED, printed

CONFIG = "set_transformer/clouds"
CONFIGS = (CONFIG,)
POINTS = (100, 1000, 5000)


def table4(results: Sequence[Result]) -> Table | None:
    """Every model at every number of points: one preset, one kind of clouds, one form. None without results."""
    own = [result for result in results if result.name == CONFIG and own_op(result)]
    # Either release of ModelNet40: its HDF5 has too few points for the last column.
    found = comparable(own, CONFIG, _place, lambda result: result.axes["data"] == "surfaces", variant)
    published = [model for model in CLOUDS if model != QUOTED]
    models = [*published, *dict.fromkeys(model for model, _ in found if model not in published)]
    return _table(found, models, POINTS) if found else None


def run_table(result: Result) -> Table:
    """One run: its accuracy beside the paper's."""
    model, points = _place(result)
    return _table({(model, points): result}, [model], (points,))


def _table(found: Mapping[tuple[str, int], Result], models: Sequence[str], points: Sequence[int]) -> Table:
    columns, heads, best = [], [], f"; {BEST}" if len(models) > 1 else ""
    for number in points:
        summaries = [
            found[model, number].metrics["trained/accuracy"] if (model, number) in found else None for model in models
        ]
        cells = [measured(summary, 100) for summary in summaries]
        columns.append(mark_best(cells, smaller_is_better=False) if best else cells)
        columns.append([_published(model, number) for model in models])
        heads += [head(number), f"{head(number)}, the paper's"]
    own = list(found.values())
    first, told = own[0], facts(own, "trained/accuracy")
    data = several(result.content["facts"]["data"] for result in own)
    steps = _by_points(found, lambda run: run.steps)
    batch = _by_points(found, lambda run: run.config["train"]["batch_size"])
    names = " and ".join([*[QUOTED] * (len(models) > 1), label_of("rffp_max")])
    quoted = f", those of {names} quoted from Zaheer et al. 2017" if "rffp_max" in models else ""
    caption = (
        f"{described(first)}; {data}; steps: {steps}, 'm of n': weights are those of step m, of the best "
        f"validation loss; clouds a batch: {batch}. Accuracy in percent, mean over {seeds_of(told)} ± standard error "
        f"over {drawn(told)} clouds{best}. The paper's numbers are of ModelNet40{quoted}."
    )
    rows = [(label_of(model), list(cells)) for model, *cells in zip(models, *columns)]
    if len(models) > 1:
        rows.insert(0, (QUOTED, [cell for number in points for cell in ("", _published(QUOTED, number))]))
    return Table("Classes of point clouds", ["model", *heads], rows, caption, facts=told)


def head(points: int) -> str:
    """Of the column of our accuracies."""
    return f"{points} points"


def _published(model: str, points: int) -> Cell | str:
    cell = CLOUDS.get(model, {}).get(points)
    return printed(cell and Cell(100 * cell.mean, 100 * cell.error, decimals=cell.decimals - 2))


def _by_points(found: Mapping[tuple[str, int], Result], value: Callable[[Result], Any]) -> str:
    """'1000 (5000 points: 300)': a value of the runs by their number of points."""
    runs = {points: [run for (_, its), run in found.items() if its == points] for _, points in found}
    return "".join(usual_and_others({head(points): several(map(value, own)) for points, own in runs.items()}))


def _place(result: Result) -> tuple[str, int]:
    return result.axes["model"], int(result.axes["points"])


TABLES = {"set_transformer/table4": table4}
