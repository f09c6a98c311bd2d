"""KVQ space at work: what every operator achieves where attention stood, from results of configs/kvq/operators.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.harness.results import Result, comparable, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from kvq_jax.ops import OPERATORS


class Column(NamedTuple):
    """The number of an experiment that is compared: the mean of a metric, times a factor."""

    head: str
    metric: str
    factor: float = 1.0
    smaller_is_better: bool = True


# The value of the axis `experiment` -> its column.
COLUMNS = {
    "sine": Column("sine, MSE at 10 points", "mse@10"),
    "pixels": Column("pixels, MSE at 64", "mse@64"),
    "policy_distillation": Column("policy distillation, MSE", "mse"),
    "kabsch": Column("Kabsch, MSE", "mse"),
    "few_shot_classification": Column("few-shot, accuracy %", "accuracy", 100, smaller_is_better=False),
    "anomaly": Column("anomaly, accuracy %", "accuracy", 100, smaller_is_better=False),
}


def operators(results: Sequence[Result]) -> Table | None:
    """Every operator but those of labels, by experiment: real data first, one preset. None without results."""
    found = comparable(results, "kvq/operators", _place, data=lambda result: result.axes["data"] != "real")
    if not found:
        return None
    ops = [name for name, operator in OPERATORS.items() if not operator.labels]
    ops += sorted({op for _, op in found}.difference(ops))
    columns = [
        mark_best([_cell(found.get((experiment, op)), column) for op in ops], column.smaller_is_better)
        for experiment, column in COLUMNS.items()
    ]
    told = {
        "preset": next(iter(found.values())).preset,
        "seeds": _by_experiment(found, lambda result, _: len(result.content["seeds"])),
        "n": _by_experiment(found, lambda result, column: result.metrics[f"trained/{column.metric}"]["n"]),
    }
    steps = _by_experiment(found, lambda result, _: result.content["steps"])
    facts = [result.content["facts"] for result in found.values()]
    images = sorted({fact["data"] for fact in facts if "data" in fact})
    chosen = sorted({name for (name, _), result in found.items() if result.config["train"]["select"] == "best"})
    return Table(
        "KVQ space at work: each experiment's attention model with other operators",
        ["operator", *(column.head for column in COLUMNS.values())],
        [(op, list(cells)) for op, *cells in zip(ops, *columns)],
        f"Preset {told['preset']}; seeds: {told['seeds']}; steps: {steps}, the weights those of the best validation "
        f"loss in {' and '.join(chosen) or 'none'}; mean ± standard error over evaluation tasks, of which there are "
        f"{told['n']}; {BEST}. Images: {'; '.join(images) or 'none'}. No paper has this table.",
        facts=told,
    )


def _place(result: Result) -> tuple[str, str]:
    return result.axes["experiment"], result.axes["op"]


def _by_experiment(found: Mapping[tuple, Result], number: Callable[[Result, Column], Any]) -> str:
    """A number of each experiment: '2000 (pixels), 4000 (kabsch)', or '2000' where all are equal."""
    of_each = {}
    for experiment, column in COLUMNS.items():
        values = {number(result, column) for (name, _), result in found.items() if name == experiment}
        if values:
            of_each[experiment] = several(values)
    if len(set(of_each.values())) == 1:
        return next(iter(of_each.values()))
    return ", ".join(f"{value} ({experiment})" for experiment, value in of_each.items())


def _cell(result: Result | None, column: Column) -> Cell:
    return measured(result and result.metrics.get(f"trained/{column.metric}"), scale=column.factor)


TABLES = {"kvq/operators": operators}
