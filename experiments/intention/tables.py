"""Tables of the Intention paper from results."""

from collections.abc import Sequence

import numpy as np

from experiments.harness.results import Result, comparable, facts, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.intention import few_shot_classification_tables
from experiments.intention.anomaly_tables import table3
from experiments.intention.known_answer_tables import table_of
from experiments.intention.scaling import figure3_table

# Names of the models as the paper writes them, in its order.
MODELS = {"intention": "Intention", "attention": "Attention", "neural_process": "Neural Process", "maml": "MAML"}
PHASES = ("trained", "untrained")
_SOURCES = ("tfds", "archive", "digits")  # the paper's images before the small ones
_SHOWN_COUNTS = 5


def mse_by_count(result: Result, phase: str) -> dict[int, dict]:
    """Number of observations -> summary of the mean squared error, of the 'trained' or the 'untrained' model."""
    prefix = f"{phase}/mse@"
    of_phase = {
        int(name.removeprefix(prefix)): summary for name, summary in result.metrics.items() if name.startswith(prefix)
    }
    return dict(sorted(of_phase.items()))


def task_name(result: Result) -> str:
    """What the curves are measured on: 'sine curves', 'MNIST pixels' or '8x8 digits pixels'."""
    data = result.config["data"]
    if data is None:
        return "sine curves"
    return "8x8 digits pixels" if data["source"] == "digits" else f"{data['name'].upper()} pixels"


def few_shot_results(results: Sequence[Result], experiment: str) -> dict[str, Result]:
    """Model -> result of 'sine' or 'pixels', in the paper's order, all of one preset and one source of images."""
    by_model = comparable(results, f"intention/{experiment}", lambda result: result.config["model"]["name"], _source)
    return {model: by_model[model] for model in MODELS if model in by_model}


def mse_table(results: Sequence[Result], models: Sequence[str] = ()) -> Table:
    """Mean squared error against the number of observations: the numbers of Figure 7 for one task.

    Args:
      results: one for each model, at least one.
      models: the models that get a row; those without a result get missing cells. Default: those of the results.
    """
    by_model = {result.config["model"]["name"]: result for result in results}
    first = results[0]
    counts = list(mse_by_count(first, "trained"))
    shown = [counts[i] for i in np.unique(np.linspace(0, len(counts) - 1, _SHOWN_COUNTS).round().astype(int))]
    rows = []
    for phase in PHASES:
        columns = [_column(by_model, models or list(by_model), phase, count) for count in shown]
        rows += [(f"{MODELS[model]}, {phase}", list(cells)) for model, cells in zip(models or by_model, zip(*columns))]
    rows.append(("the paper's Figure 7", ["(curve)"] * len(shown)))
    told = facts(results, f"trained/mse@{counts[0]}")
    best = f", {BEST}, trained and untrained apart" if len(models or by_model) > 1 else ""
    caption = (
        f"Preset {told['preset']}, {several(result.steps for result in results)} steps, {told['seeds']} seed(s); mean ± "
        f"standard error over {told['n']} tasks{best}. The paper prints no numbers for this figure."
    )
    title = f"{task_name(first)}: MSE against number of observations"
    return Table(title, ["model", *map(str, shown)], rows, caption, facts=told)


def _column(by_model: dict[str, Result], models: Sequence[str], phase: str, count: int) -> list[Cell]:
    cells = [
        measured(mse_by_count(by_model[model], phase).get(count)) if model in by_model else Cell() for model in models
    ]
    return mark_best(cells) if len(cells) > 1 else cells


def _source(result: Result) -> int:
    """The place of a run's images among _SOURCES; sine curves have none."""
    return _SOURCES.index(result.config["data"]["source"]) if result.config["data"] else 0


def _figure7_table(experiment: str):
    def table(results: Sequence[Result]) -> Table | None:
        chosen = few_shot_results(results, experiment)
        return mse_table(list(chosen.values()), list(MODELS)) if chosen else None

    return table


TABLES = {
    "table1": few_shot_classification_tables.table_of("table1"),
    "table2": few_shot_classification_tables.table_of("table2"),
    "table3": table3,
    "figure3": figure3_table,
    "figure7_sine": _figure7_table("sine"),
    "figure7_pixels": _figure7_table("pixels"),
    "figure9": table_of("policy_distillation"),
    "figure10": table_of("kabsch"),
}
