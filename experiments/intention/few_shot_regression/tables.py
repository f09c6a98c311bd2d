"""Tables of few-shot regression (Intention paper, Section 5.1): the numbers of Figure 7."""

import functools
from collections.abc import Sequence

from experiments.harness.results import Result, comparable, drawn, facts, seeds_of, several
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured
from experiments.regression.labels import PHASES, by_count, label, model_of
from experiments.regression.tables import shown_counts

CONFIGS = ("intention/sine", "intention/pixels")
MODELS = ("intention", "attention", "neural_process", "maml")  # in the paper's order
_SOURCES = ("tfds", "archive", "digits")  # the paper's images before the small ones


def task_name(result: Result) -> str:
    """What the curves are measured on: 'sine curves', 'MNIST pixels' or '8x8 digits pixels'."""
    data = result.config["data"]
    if data is None:
        return "sine curves"
    return "8x8 digits pixels" if data["source"] == "digits" else f"{data['name'].upper()} pixels"


def few_shot_results(results: Sequence[Result], experiment: str) -> dict[str, Result]:
    """Model -> result of 'sine' or 'pixels', in the paper's order, all of one preset and one source of images."""
    by_model = comparable(results, f"intention/{experiment}", model_of, _source)
    return {model: by_model[model] for model in MODELS if model in by_model}


def run_table(results: Sequence[Result], models: Sequence[str] = ()) -> Table:
    """Mean squared error against the number of observations: the numbers of Figure 7 for one task.

    Args:
      results: one for each model, at least one.
      models: the models that get a row; those without a result get missing cells. Default: those of the results.
    """
    by_model = {model_of(result): result for result in results}
    models, first = models or list(by_model), results[0]
    shown = shown_counts(by_count(first, "trained"))
    rows = []
    for phase in PHASES:
        columns = [_column(by_model, models, phase, count) for count in shown]
        rows += [(f"{label(model)}, {phase}", list(cells)) for model, cells in zip(models, zip(*columns))]
    rows.append(("the paper's Figure 7", ["(curve)"] * len(shown)))
    told = facts(results, f"trained/mse@{shown[0]}")
    best = f", {BEST}, trained and untrained apart" if len(models) > 1 else ""
    caption = (
        f"Preset {told['preset']}, {several(result.steps for result in results)} steps, {seeds_of(told)}; mean "
        f"± standard error over {drawn(told)} tasks{best}. The paper prints no numbers for this figure."
    )
    title = f"{task_name(first)}: MSE against number of observations"
    return Table(title, ["model", *map(str, shown)], rows, caption, facts=told)


def _column(by_model: dict[str, Result], models: Sequence[str], phase: str, count: int) -> list[Cell]:
    curves = [by_count(by_model[model], phase) if model in by_model else {} for model in models]
    cells = [measured(curve.get(count)) for curve in curves]
    return mark_best(cells) if len(cells) > 1 else cells


def _source(result: Result) -> int:
    """The place of a run's images among _SOURCES; sine curves have none."""
    return _SOURCES.index(result.config["data"]["source"]) if result.config["data"] else 0


def _figure7(experiment: str, results: Sequence[Result]) -> Table | None:
    chosen = few_shot_results(results, experiment)
    return run_table(list(chosen.values()), MODELS) if chosen else None


TABLES = {f"intention/figure7_{name}": functools.partial(_figure7, name) for name in ("sine", "pixels")}
