"""Table 7 of the CMANP paper, contextual bandits, from results; and the table of one run."""

import math
from collections.abc import Sequence

from experiments.harness.results import Result, comparable, facts
from experiments.harness.tables import MISSING, Cell, Table, mark_best, measured
from experiments.neural_processes.paper_numbers import TABLE7, printed
from kvq_jax.models import MODELS, family

CONFIGS = ("neural_processes/wheel",)
# Names of the policies that learn nothing.
REFERENCES = {
    "uniform": "Uniform",
    "first_arm": "always arm 0",
    "quadrant": "the quadrant's arm",
    "oracle": "the best arm",
}
# (protocol, drop), that of the paper's numbers first.
_READINGS = (("code", "published"), ("code", "all"), ("text", "published"), ("text", "all"))


def chosen_results(results: Sequence[Result]) -> dict[str, Result]:
    """Model -> result, all of one preset and one reading of the experiment, in the paper's order."""
    by_model = comparable(
        results,
        CONFIGS[0],
        lambda result: result.axes["model"],
        variant=lambda result: _READINGS.index(_reading(result)),
    )
    return {model: by_model[model] for model in MODELS if model in by_model}


def table7(results: Sequence[Result]) -> Table | None:
    """Our cumulative regrets beside the paper's, and those of policies that learn nothing; None without results."""
    chosen = chosen_results(results)
    if not chosen:
        return None
    first = next(iter(chosen.values()))
    models = {name: row.label for name, row in family("neural_process").items() if row.cls.likelihood == "marginal"}
    columns = [["" for _ in REFERENCES] + [chosen[name].steps if name in chosen else MISSING for name in models]]
    for delta in _deltas(first):
        references = [_regret(first, f"{policy}/cumulative@{delta}") for policy in REFERENCES]
        columns.append([*references, *mark_best([_regret(chosen.get(name), f"cumulative@{delta}") for name in models])])
        columns.append([printed(TABLE7, row, delta) for row in (*REFERENCES, *models)])
    heads = [head for delta in _deltas(first) for head in (f"{delta}", f"{delta}, paper")]
    caption = (
        "Cumulative regret by radius delta in percent of Uniform's mean, lower is better: mean ± standard deviation "
        f"over {_told(first)}. The best model of a column, and those whose deviations reach it, in bold. "
        f"{_note(first)} The paper: 2000 rounds, 50 orders, 100000 steps."
    )
    rows = list(zip([*REFERENCES.values(), *models.values()], map(list, zip(*columns))))
    title, columns = "Wheel bandit (CMANP paper, Table 7)", ["policy", "steps", *heads]
    told = facts(chosen.values(), f"trained/cumulative@{_deltas(first)[0]}")
    return Table(title, columns, rows, caption, error="std", facts=told)


def run_table(results: Sequence[Result]) -> Table:
    """One run: cumulative and simple regret of its model, and cumulative regret of the policies that learn nothing."""
    (result,) = results
    model, deltas = result.axes["model"], _deltas(result)
    label = MODELS[model].label
    metrics = {label: "cumulative", f"{label}, simple": "simple"}
    metrics |= {name: f"{policy}/cumulative" for policy, name in REFERENCES.items()}
    rows = [(name, [_regret(result, f"{metric}@{delta}") for delta in deltas]) for name, metric in metrics.items()]
    rows.insert(1, (f"{label}, paper", [printed(TABLE7, model, delta) for delta in deltas]))
    caption = (
        f"Regret by radius delta in percent of Uniform's mean, ± standard deviation over {_told(result)}; simple: of "
        f"the last {result.config['evaluation']['last']} rounds. {_note(result)} {result.steps} steps."
    )
    told = facts(results, f"trained/cumulative@{deltas[0]}")
    return Table("Wheel bandit", ["policy", *map(str, deltas)], rows, caption, error="std", facts=told)


def _regret(result: Result | None, metric: str) -> Cell:
    """The trained model's mean with the paper's ±: the standard deviation over its n seeds (of divisor n)."""
    summary = result.metrics.get(f"trained/{metric}") if result else None
    return measured(summary, errors=math.sqrt(summary["n"] - 1) if summary else 1)


def _deltas(result: Result) -> list[float]:
    return result.config["evaluation"]["deltas"]


def _told(result: Result) -> str:
    evaluation = result.config["evaluation"]
    what = "orders of the published wheels" if evaluation["wheels"] == "published" else "fresh wheels"
    return f"{evaluation['seeds']} {what}, {evaluation['rounds']} rounds each"


def _note(result: Result) -> str:
    protocol, drop = _reading(result)
    dropped = {"published": "in training from TNP-D on, as published", "all": "in training for all models"}[drop]
    return f"Preset {result.preset}, protocol {protocol}; half of the rewards dropped {dropped}."


def _reading(result: Result) -> tuple[str, str]:
    return result.axes["protocol"], result.axes["drop"]


TABLES = {"cmanp/table7": table7}
