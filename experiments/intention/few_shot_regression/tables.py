"""Tables of few-shot regression (Intention paper, Section 5.1): the numbers of Figure 7."""

import functools
from collections.abc import Callable, Mapping, Sequence

from experiments.harness.results import Result, comparable, drawn, facts, seeds_by_name, steps_by_name
from experiments.harness.tables import BEST, Cell, Table, mark_best, measured, median
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


def run_table(result: Result) -> Table:
    """Mean squared error against the number of observations."""
    return _table({model_of(result): result}, [model_of(result)])


def _table(by_model: Mapping[str, Result], models: Sequence[str]) -> Table:
    """The numbers of Figure 7 for one task: a row for each of `models`; one without a result gets missing cells."""
    results = list(by_model.values())
    first = results[0]
    shown = shown_counts(by_count(first, "trained"))
    rows = []
    for phase, told_by in ((PHASES[0], measured), (PHASES[0], median), (PHASES[1], measured)):
        name = f"{phase}, median" if told_by is median else phase
        columns = [_column(by_model, models, phase, count, told_by) for count in shown]
        rows += [(f"{label(model)}, {name}", list(cells)) for model, cells in zip(models, zip(*columns))]
    rows.append(("the paper's Figure 7", ["(curve)"] * len(shown)))
    told = facts(results, f"trained/mse@{shown[0]}")
    best = f", {BEST} of the same kind" if len(models) > 1 else ""
    named = {label(model): result for model, result in by_model.items()}
    caption = (
        f"Preset {told['preset']}, {steps_by_name(named)}, {seeds_by_name(named)}; mean ± standard error, "
        f"and median, over {drawn(told)} tasks{best}. The paper prints no numbers for this figure."
    )
    title = f"{task_name(first)}: MSE against number of observations"
    return Table(title, ["model", *map(str, shown)], rows, caption, facts=told)


def _column(
    by_model: Mapping[str, Result],
    models: Sequence[str],
    phase: str,
    count: int,
    told_by: Callable[[Mapping | None], Cell],
) -> list[Cell]:
    curves = [by_count(by_model[model], phase) if model in by_model else {} for model in models]
    cells = [told_by(curve.get(count)) for curve in curves]
    return mark_best(cells) if len(cells) > 1 else cells


def _source(result: Result) -> int:
    """The place of a run's images among _SOURCES; sine curves have none."""
    return _SOURCES.index(result.config["data"]["source"]) if result.config["data"] else 0


def _figure7(experiment: str, results: Sequence[Result]) -> Table | None:
    chosen = few_shot_results(results, experiment)
    return _table(chosen, MODELS) if chosen else None


TABLES = {f"intention/figure7_{name}": functools.partial(_figure7, name) for name in ("sine", "pixels")}
