"""KVQ space at work: what every operator achieves where attention stood, from results of configs/kvq/operators.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.harness.results import Result, comparable, usual_and_others
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
    """Every operator but those of labels, by experiment, as its experiment has attention. None without results."""
    found = _comparable([result for result in results if "smoothing" not in result.axes])
    return _table(found, "KVQ space at work: each experiment's attention model with other operators") if found else None


def smoothing(results: Sequence[Result]) -> Table | None:
    """The same, scaled as the theory of each operator asks, from the start of the least validation loss.

    None without results.
    """
    tried = _comparable([result for result in results if "smoothing" in result.axes], lambda r: r.axes["smoothing"])
    if not tried:
        return None
    places = dict.fromkeys(place[:2] for place in tried)
    runs = {place: [result for (*its, _), result in tried.items() if tuple(its) == place] for place in places}
    found = {place: min(results, key=lambda result: result.validation) for place, results in runs.items()}
    starts: dict[str, list[str]] = {}
    for (experiment, op), result in found.items():
        start = f"{op} {result.axes['smoothing']} of {len(runs[experiment, op])}"
        starts.setdefault(experiment, []).append(start)
    told = "; ".join(f"{experiment}: {', '.join(starts[experiment])}" for experiment in COLUMNS if experiment in starts)
    return _table(
        found,
        "KVQ space at work: every operator with the scale that its theory asks for",
        f" Operators start from one of five scales, by how much they smooth: least, little, some, much, most "
        f"(configs/kvq/operators.py). Each has the start of the least validation loss, of so many as were run: {told}.",
    )


def _comparable(results: Sequence[Result], *axes: Callable[[Result], str]) -> dict[tuple, Result]:
    """(experiment, operator, *axes) -> result: real images first, one preset."""
    place = lambda result: (result.axes["experiment"], result.axes["op"], *(axis(result) for axis in axes))
    own = [result for result in results if result.name == "kvq/operators"]
    real = any(result.axes["data"] == "real" for result in own if _has_images(result))
    shown = [result for result in own if not (real and _has_images(result) and result.axes["data"] != "real")]
    return comparable(shown, "kvq/operators", place)


def _has_images(result: Result) -> bool:
    return "data" in result.content["facts"]


def _table(found: Mapping[tuple[str, str], Result], title: str, chosen: str = "") -> Table:
    ops = [name for name, operator in OPERATORS.items() if not operator.labels]
    ops += sorted({op for _, op in found}.difference(ops))
    columns = [
        mark_best([_cell(found.get((experiment, op)), column) for op in ops], column.smaller_is_better)
        for experiment, column in COLUMNS.items()
    ]
    told = {
        "preset": next(iter(found.values())).preset,
        "seeds": _by_experiment(found, lambda result: len(result.content["seeds"])),
        "n": _by_experiment(found, _tasks),
    }
    steps = _by_experiment(found, lambda result: result.content["steps"])
    facts = [result.content["facts"] for result in found.values()]
    images = sorted({fact["data"] for fact in facts if "data" in fact})
    selected = sorted({name for (name, _), result in found.items() if result.config["train"]["select"] == "best"})
    return Table(
        title,
        ["operator", *(column.head for column in COLUMNS.values())],
        [(op, list(cells)) for op, *cells in zip(ops, *columns)],
        f"Preset {told['preset']}; seeds: {told['seeds']}; steps: {steps}, the weights those of the best validation "
        f"loss in {' and '.join(selected) or 'none'}; mean ± standard error over "
        f"{'' if told['seeds'] == '1' else 'seeds and '}evaluation tasks ({told['n']}); {BEST}. Images: "
        f"{'; '.join(images) or 'none'}.{chosen} No paper has this table.",
        facts=told,
    )


def _by_experiment(found: Mapping[tuple, Result], number: Callable[[Result], Any]) -> str:
    """A number of each experiment: 'pixels 2000, kabsch 4000 (erf: 1000)', or '2000' where all are equal."""
    of_each = {}
    for experiment in COLUMNS:
        values = {op: number(result) for (name, op), result in found.items() if name == experiment}
        if values:
            of_each[experiment] = "".join(usual_and_others(values))
    if len(set(of_each.values())) == 1:
        return next(iter(of_each.values()))
    return ", ".join(f"{experiment} {value}" for experiment, value in of_each.items())


def _tasks(result: Result) -> int:
    return result.metrics[f"trained/{COLUMNS[result.axes['experiment']].metric}"]["n"]


def _cell(result: Result | None, column: Column) -> Cell:
    return measured(result and result.metrics.get(f"trained/{column.metric}"), scale=column.factor)


TABLES = {"kvq/operators": operators, "kvq/smoothing": smoothing}
