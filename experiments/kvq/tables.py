"""KVQ space at work: what every operator achieves where attention stood, from results of configs/kvq/operators.py."""
from collections.abc import Sequence
from typing import NamedTuple

from experiments.harness.results import Result, latest_preset
from experiments.harness.tables import Cell, Table, mark_best
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
    """Operators by experiments, all of one preset, and of real data where there are such results; None without results."""
    own = [result for result in results if result.name == "kvq/operators"]
    preset = latest_preset(own)
    own = [result for result in own if result.preset == preset]
    data = max((result.config["axes"]["data"] for result in own), default=None)  # 'real' before 'digits'
    found = {_place(result): result for result in own if result.config["axes"]["data"] == data}
    if not found:
        return None
    ops = [op for op in OPS if any(op == known for _, known in found)]
    columns = [
        mark_best([_cell(found.get((experiment, op)), column) for op in ops], column.smaller_is_better)
        for experiment, column in COLUMNS.items()
    ]
    return Table(
        "KVQ space at work: each experiment's attention model with other operators",
        ["operator", *(column.head for column in COLUMNS.values())],
        [(op, list(cells)) for op, *cells in zip(ops, *columns)],
        f"Preset {preset}, {len(next(iter(found.values())).content['seeds'])} seed(s), {_steps(found)} steps; mean ± standard error over evaluation "
        f"tasks, the best of each column and those within its error in bold. Images: {_images(found)}. No paper has this table.",
    )


def _place(result: Result) -> tuple[str, str]:
    return result.config["axes"]["experiment"], result.config["axes"]["op"]


def _steps(found: dict[tuple, Result]) -> str:
    """'2000 (pixels), 4000 (kabsch)'."""
    steps = {experiment: result.content["steps"] for (experiment, _), result in found.items()}
    return ", ".join(f"{steps[experiment]} ({experiment})" for experiment in COLUMNS if experiment in steps)


def _images(found: dict[tuple, Result]) -> str:
    """The data sets, as the runs quote them."""
    return "; ".join(sorted({result.content["facts"]["data"] for result in found.values() if result.content["facts"]})) or "none"


def _cell(result: Result | None, column: Column) -> Cell:
    if result is None:
        return Cell()
    summary = result.metrics[f"trained/{column.metric}"]
    return Cell(column.factor * summary["mean"], column.factor * summary["sem"])


TABLES = {"operators": operators}
