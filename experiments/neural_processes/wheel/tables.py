"""Table 7 of the CMANP paper, contextual bandits, in each reading of it, from results; and the table of one run."""

import functools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from experiments.harness.results import Result, comparable, facts, seeds_of, usual_and_others
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
DROPS = ("published", "all")  # that of the paper's numbers first


class Reading(NamedTuple):
    """How models were trained, and which state is judged: the results of one table share both."""

    protocol: str = "code"
    select: str = "last"

    def __str__(self) -> str:
        state = {"last": "the last state", "best": "the state of the least validation loss"}[self.select]
        return f"protocol {self.protocol}, {state}"


PUBLISHED = Reading()  # of the paper's numbers
# What a command line may change in a run of a table: what is told of each, and what changes no number.
_TOLD_OF_EACH = ("train.select", "train.seeds", "train.steps", "evaluation.seeds")
_WITHOUT_EFFECT = ("train.placement", "evaluation.batch_size", "evaluation.stages")


def chosen_results(results: Sequence[Result], reading: Reading = PUBLISHED) -> dict[str, Result]:
    """Model -> result, all of one preset, one reading and one way to drop rewards, in the paper's order.

    A run of another model, task or optimizer than configured stands in no table beside those that are as configured.
    """
    by_model = comparable(
        of_reading(results, reading),
        CONFIGS[0],
        lambda result: result.axes["model"],
        variant=lambda result: (DROPS.index(result.axes["drop"]), bool(changed(result))),
    )
    return {model: by_model[model] for model in MODELS if model in by_model}


def changed(result: Result) -> str:
    """'std_floor=0.1 and ...': what the command line changed, beside what tables tell; else ''."""
    changes = {
        key: value for key, value in sorted(result.overrides.items()) if key not in _TOLD_OF_EACH + _WITHOUT_EFFECT
    }
    return " and ".join(f"{key.rpartition('.')[2]}={value}" for key, value in changes.items())


def of_reading(results: Sequence[Result], reading: Reading) -> list[Result]:
    """The bandits of one reading."""
    return [result for result in results if result.name == CONFIGS[0] and _reading(result) == reading]


def table7(results: Sequence[Result], reading: Reading = PUBLISHED) -> Table | None:
    """Our cumulative regrets beside the paper's, and those of policies that learn nothing; None without results."""
    chosen = chosen_results(results, reading)
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
    told = facts(chosen.values(), f"trained/cumulative@{_deltas(first)[0]}")
    caption = (
        "Cumulative regret by radius delta in percent of Uniform's mean in the same plays, lower is better: mean ± "
        f"standard deviation over {plays(chosen.values())}, of {seeds_of(told)} of training. In bold the best model of "
        f"a column and those within the joint deviation of it. {_note(chosen.values())} The paper: 2000 rounds, 50 "
        "orders, 100000 steps."
    )
    rows = list(zip([*REFERENCES.values(), *models.values()], map(list, zip(*columns))))
    title = "Wheel bandit (CMANP paper, Table 7)" + (f": {reading}" if reading != PUBLISHED else "")
    return Table(title, ["policy", "steps", *heads], rows, caption, error="std", facts=told)


def run_table(result: Result) -> Table:
    """One run: cumulative and simple regret of its model, and cumulative regret of the policies that learn nothing."""
    model, deltas = result.axes["model"], _deltas(result)
    label = MODELS[model].label
    metrics = {label: "cumulative", f"{label}, simple": "simple"}
    metrics |= {name: f"{policy}/cumulative" for policy, name in REFERENCES.items()}
    rows = [(name, [_regret(result, f"{metric}@{delta}") for delta in deltas]) for name, metric in metrics.items()]
    rows.insert(1, (f"{label}, paper", [printed(TABLE7, model, delta) for delta in deltas]))
    caption = (
        f"Regret by radius delta in percent of Uniform's mean, ± standard deviation over {plays([result])}; simple: of "
        f"the last {result.config['evaluation']['last']} rounds. {_note([result])} {result.steps} steps."
    )
    told = facts([result], f"trained/cumulative@{deltas[0]}")
    return Table("Wheel bandit", ["policy", *map(str, deltas)], rows, caption, error="std", facts=told)


def plays(results: Iterable[Result]) -> str:
    """'50 fresh wheels, 2000 rounds each', or '50 (BANP: 5) fresh wheels, ...'."""
    evaluations = {MODELS[result.axes["model"]].label: result.config["evaluation"] for result in results}
    usual, others = usual_and_others({name: evaluation["seeds"] for name, evaluation in evaluations.items()})
    first = next(iter(evaluations.values()))
    what = "orders of the published wheels" if first["wheels"] == "published" else "fresh wheels"
    return f"{usual}{others} {what}, {first['rounds']} rounds each"


def _regret(result: Result | None, metric: str) -> Cell:
    """The mean over trainings with the paper's ±: the standard deviation (of divisor n) over n plays, of their mean."""
    summary = result.metrics.get(f"trained/{metric}") if result else None
    if not summary:
        return measured(None)
    return measured(summary | {"sem": summary["sem_of_tasks"]}, errors=math.sqrt(summary["n"] - 1))


def _deltas(result: Result) -> list[float]:
    return result.config["evaluation"]["deltas"]


def _note(results: Collection[Result]) -> str:
    """Preset, reading, and which models learn from contexts of which half the rewards are noise."""
    first = next(iter(results))
    noisy = [MODELS[result.axes["model"]].label for result in results if _drops(result)]
    told = f"half of the rewards dropped in training of {', '.join(noisy)}" if noisy else "no rewards dropped"
    return f"Preset {first.preset}, {_reading(first)}; {told}."


def _drops(result: Result) -> bool:
    """TNP-D drops by itself, the others have it from the task."""
    return max(result.config["task"]["drop"], result.config["model"].get("drop_y", 0)) > 0


def _reading(result: Result) -> Reading:
    return Reading(result.axes["protocol"], result.config["train"]["select"])


READINGS = {
    "cmanp/table7": PUBLISHED,
    "cmanp/table7_best": Reading(select="best"),
    "cmanp/table7_text": Reading("text"),
    "cmanp/table7_text_best": Reading("text", "best"),
}
TABLES = {name: functools.partial(table7, reading=reading) for name, reading in READINGS.items()}
