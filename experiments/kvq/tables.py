"""KVQ space at work: what every operator achieves where attention stood, from results of configs/kvq/operators.py."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.harness.results import Result, comparable, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from kvq_jax.ops import OPS


class Column(NamedTuple):
    """What is compared in an experiment: the mean of `metric`, times `factor`."""

    head: str
    metric: str
    factor: float = 1.0
    smaller_is_better: bool = True


COLUMNS = {
    "sine": Column("sine, MSE at 10 points", "mse@10"),
    "pixels": Column("pixels, MSE at 64", "mse@64"),
    "policy_distillation": Column("policy distillation, MSE", "mse"),
    "kabsch": Column("Kabsch, MSE", "mse"),
    "few_shot_classification": Column("few-shot, accuracy %", "accuracy", 100, smaller_is_better=False),
    "anomaly": Column("anomaly, accuracy %", "accuracy", 100, smaller_is_better=False),
}


def operators(results: Sequence[Result]) -> Table | None:
    """Operators by experiments, of real data where there are such results, and all of one preset; None without results."""
    found = comparable(results, "kvq/operators", _place, data=lambda result: result.config["axes"]["data"] != "real")
    if not found:
        return None
    ops = [op for op in OPS if any(op == known for _, known in found)]
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
    chosen = sorted(
        {experiment for (experiment, _), result in found.items() if result.config["train"]["select"] == "best"}
    )
    return Table(
        "KVQ space at work: each experiment's attention model with other operators",
        ["operator", *(column.head for column in COLUMNS.values())],
        [(op, list(cells)) for op, *cells in zip(ops, *columns)],
        f"Preset {told['preset']}; seeds: {told['seeds']}; steps: {steps}, the weights those of the best validation loss in "
        f"{' and '.join(chosen) or 'none'}; mean ± standard error over evaluation tasks, of which there are {told['n']}; {BEST}. "
        f"Images: {_images(found)}. No paper has this table.",
        facts=told,
    )


def _place(result: Result) -> tuple[str, str]:
    return result.config["axes"]["experiment"], result.config["axes"]["op"]


def _by_experiment(found: dict[tuple, Result], number: Callable[[Result, Column], Any]) -> str:
    """'2000 (pixels), 4000 (kabsch)', or one number where all experiments have it."""
    of_each = {}
    for experiment, column in COLUMNS.items():
        values = {number(result, column) for (name, _), result in found.items() if name == experiment}
        if values:
            of_each[experiment] = several(values)
    if len(set(of_each.values())) == 1:
        return next(iter(of_each.values()))
    return ", ".join(f"{value} ({experiment})" for experiment, value in of_each.items())


def _images(found: dict[tuple, Result]) -> str:
    """The data sets, as the runs quote them."""
    return (
        "; ".join(sorted({result.content["facts"]["data"] for result in found.values() if result.content["facts"]}))
        or "none"
    )


def _cell(result: Result | None, column: Column) -> Cell:
    if result is None:
        return Cell()
    return measured(result.metrics[f"trained/{column.metric}"], scale=column.factor)


TABLES = {"operators": operators}
