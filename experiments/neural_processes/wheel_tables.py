"""Table 7 of the CMANP paper, contextual bandits, from results; and the table of one run."""

import math
from collections.abc import Iterable, Sequence

from experiments.harness.results import Result, comparable, facts
from experiments.harness.tables import MISSING, Cell, Table, mark_best, measured
from experiments.neural_processes.published import MODELS, TABLE7

# Names of the policies that learn nothing.
REFERENCES = {
    "uniform": "Uniform",
    "first_arm": "always arm 0",
    "quadrant": "the quadrant's arm",
    "oracle": "the best arm",
}
# The models of the table: those of the paper, EQTNP and ours.
WHEEL_MODELS = tuple(
    model for model in MODELS if model in TABLE7 or model in ("eqtnp", "intention_anp", "intention_cmanp")
)
# (protocol, drop): the one that the paper's numbers were made with first.
_READINGS = (("code", "published"), ("code", "all"), ("text", "published"), ("text", "all"))


def chosen_results(results: Sequence[Result]) -> dict[str, Result]:
    """Model -> result, all of one preset and one reading of the experiment, in the paper's order."""
    by_model = comparable(
        results,
        "neural_processes/wheel",
        lambda result: _axis(result, "model"),
        variant=lambda result: _READINGS.index(_reading(result)),
    )
    return {model: by_model[model] for model in MODELS if model in by_model}


def table7(results: Sequence[Result]) -> Table | None:
    """Our cumulative regrets beside the paper's, and those of policies that learn nothing; None without results."""
    chosen = chosen_results(results)
    if not chosen:
        return None
    first = next(iter(chosen.values()))
    names = [*REFERENCES.values(), *(MODELS[model] for model in WHEEL_MODELS)]
    columns = [["" for _ in REFERENCES] + [_steps(chosen.get(model)) for model in WHEEL_MODELS]]
    for delta in _deltas(first):
        references = [_regret(first, f"{policy}/cumulative@{delta}") for policy in REFERENCES]
        models = [_regret(chosen.get(model), f"cumulative@{delta}") for model in WHEEL_MODELS]
        columns.append([*references, *mark_best(models)])
        columns.append([_paper_number(row, delta) for row in (*REFERENCES, *WHEEL_MODELS)])
    heads = [head for delta in _deltas(first) for head in (f"{delta}", f"{delta}, paper")]
    caption = (
        "Cumulative regret by radius delta in percent of Uniform's mean, lower is better: mean ± standard deviation over "
        f"{_told(first)}. The best model of a column, and those whose deviations reach it, in bold. {_note(first)} "
        "The paper: 2000 rounds, 50 orders, 100000 steps."
    )
    rows = list(zip(names, map(list, zip(*columns))))
    told = _facts(chosen.values())
    return Table(
        "Wheel bandit (CMANP paper, Table 7)", ["policy", "steps", *heads], rows, caption, error="std", facts=told
    )


def run_table(results: Sequence[Result]) -> Table:
    """One run: cumulative and simple regret of its model, and cumulative regret of the policies that learn nothing."""
    (result,) = results
    model, deltas = _axis(result, "model"), _deltas(result)
    measured = {MODELS[model]: "cumulative", f"{MODELS[model]}, simple": "simple"}
    measured |= {name: f"{policy}/cumulative" for policy, name in REFERENCES.items()}
    rows = [(name, [_regret(result, f"{metric}@{delta}") for delta in deltas]) for name, metric in measured.items()]
    rows.insert(1, (f"{MODELS[model]}, paper", [_paper_number(model, delta) for delta in deltas]))
    caption = (
        f"Regret by radius delta in percent of Uniform's mean, ± standard deviation over {_told(result)}; simple: of the last "
        f"{result.config['evaluation']['last']} rounds. {_note(result)} {result.steps} steps."
    )
    return Table("Wheel bandit", ["policy", *map(str, deltas)], rows, caption, error="std", facts=_facts(results))


def _regret(result: Result | None, metric: str) -> Cell:
    """The trained model's mean, with the paper's ±: the standard deviation over seeds (a sum of squares over their number)."""
    summary = result.metrics.get(f"trained/{metric}") if result else None
    return measured(summary, errors=math.sqrt(summary["n"] - 1) if summary else 1)


def _paper_number(policy: str, delta: float) -> Cell | str:
    """4.08 ± 0.29 as Table 7 prints it; a dash where it has none."""
    number = TABLE7.get(policy, {}).get(delta)
    return Cell(*number, decimals=2) if number else "-"


def _facts(results: Iterable[Result]) -> dict[str, str]:
    results = list(results)
    return facts(results, f"trained/cumulative@{_deltas(results[0])[0]}")


def _steps(result: Result | None) -> str:
    return result.steps if result else MISSING


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
    return _axis(result, "protocol"), _axis(result, "drop")


def _axis(result: Result, name: str) -> str:
    return result.content["axes"][name]
