"""Tasks with answers in closed form: what policy distillation and the generalised Kabsch task show alike."""

import json
from collections.abc import Callable, Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, Unsaid, digits
from experiments.harness.results import Result, comparable, drawn, facts, seeds_by_name, several
from experiments.harness.tables import BEST, Table, mark_best, measured, median
from experiments.regression.labels import METHODS, label, model_of

MODELS = ("intention", "attention", "neural_process", "mlp", "maml")  # in the paper's order, which has no MAML here
# A model in another form than the preset's own has a row of its own. Form -> what its name then has behind it.
_FORMS = {"": "", "paper": ", the paper's form", "regression": ", few-shot regressor"}
# Form -> what captions call models of it.
_CALLED = {"paper": "models in the paper's form", "regression": "few-shot regressors"}

Row = tuple[str, str]  # model, form


def chosen(results: Sequence[Result], experiment: str) -> dict[str, Result]:
    """Model -> result of 'policy_distillation' or 'kabsch', in the order of MODELS: of one preset and dimension.

    A point cloud is only drawn. Of runs that differ in nothing else, and so have the same errors, one with a real cloud
    is chosen.
    """
    own = _each_training(results, experiment)
    return _by_model(own, experiment, lambda result: (_form(result), _dimension(result)))


def of_one_cloud(results: Sequence[Result], experiment: str) -> dict[str, Result]:
    """As `chosen`, all with one point cloud, a real one first."""
    return _by_model(results, experiment, lambda result: (_form(result), _dimension(result), _cloud(result)))


def own_form(result: Result) -> str:
    """What the models of its preset are whose names say no form."""
    return _CALLED[_own_form(result)]


def model_name(result: Result) -> str:
    """'Intention', or 'Intention, the paper's form' where the preset's own is another."""
    return _name(_row(result))


def answers(result: Result) -> dict[str, dict]:
    """Method -> summary of its squared error, for those of METHODS that the run has measured."""
    found = {method: f"trained/{method}_mse" for method in METHODS}
    return {method: result.metrics[name] for method, name in found.items() if name in result.metrics}


def short(number: float | None) -> str:
    """Two significant digits of a number of result.json, which has None for what is not finite."""
    return "not finite" if number is None else f"{number:.2g}"


def error_table(results: Sequence[Result], title: str, figure: str, note: str, models: Sequence[str] = ()) -> Table:
    """Mean and median squared error of each model and of each method in closed form.

    Args:
      results: one for each model and form, at least one.
      title, note: of the table, and of its caption.
      figure: of the paper, which prints no numbers.
      models: models that get a row in any case; one without a result gets missing cells.
    """
    by_row = {_row(result): result for result in results}
    places = list(dict.fromkeys([*((model, "") for model in models), *by_row]))
    summaries = [by_row[place].metrics["trained/mse"] if place in by_row else None for place in places]
    means, medians, best = list(map(measured, summaries)), list(map(median, summaries)), ""
    if len(places) > 1:
        means, medians, best = mark_best(means), mark_best(medians), f", {BEST}"
    rows = [(_name(place), list(cells)) for place, *cells in zip(places, means, medians)]
    rows += [(METHODS[method], [measured(of), median(of)]) for method, of in answers(results[0]).items()]
    rows.append((f"the paper's {figure}", ["(curve)"] * 2))
    told = facts(results, "trained/mse")
    seeds = seeds_by_name({_name(place): result for place, result in by_row.items()})
    caption = (
        f"Preset {told['preset']}, {several(result.steps for result in results)} steps, {seeds}; mean "
        f"± standard error and median over {drawn(told)} tasks{best}. Where a row says no form: "
        f"{own_form(results[0])}. {note} The paper prints no numbers for this figure."
    )
    return Table(title, ["predictions of", "MSE", "median"], rows, caption, facts=told)


def table_of(results: Sequence[Result], experiment: str, **words: str) -> Table | None:
    """The table of an experiment, from all results; None without any of its own. words: of error_table."""
    own = comparable(_each_training(results, experiment), f"intention/{experiment}", _row, variant=_dimension)
    own = list(own.values())
    if not own:
        return None
    models = [model for model in MODELS if model != "maml" or _own_form(own[0]) != "paper"]
    return error_table(own, models=models, **words)


def only_intention(task: str, build: Callable, results: Sequence[Result]) -> Iterator[Finding]:
    """How far Intention's error is below every baseline's, in the paper's form and in ours; build: makes the table."""
    number = Numbers(build, results)
    first = next(iter(number.known(number.rows, "MSE")), None)
    if first is None:
        raise Unsaid(f"no result on {task}")
    run = number.cell(first, "MSE").run
    own = _own_form(run)
    full = f", at its widths and after {run.steps} steps" if own == "paper" else ""
    forms = {"paper": f"In the paper's form{full}", "regression": "As few-shot regressors"}
    for form, heading in forms.items():
        names = {model: _name((model, "" if form == own else form)) for model in MODELS if model != "maml"}
        errors = number.known([name for name in names.values() if name in number.rows], "MSE")
        if names["intention"] not in errors or len(errors) == 1:
            continue
        ours = errors.pop(names["intention"])
        best = min(errors, key=errors.get)
        yield Finding(
            f"{heading}, Intention's squared error on {task} is {digits(ours)}, the best baseline's ({_bare(best)}) "
            f"{digits(errors[best])}, {digits(errors[best] / ours)} times as much.",
            errors[best] > 2 * ours,
        )


def at_full_length(task: str, build: Callable, results: Sequence[Result]) -> Iterator[Finding]:
    """The same of runs of preset `paper` alone."""
    return only_intention(task, build, [result for result in results if result.preset == "paper"])


def _bare(name: str) -> str:
    return name.partition(",")[0]


def _by_model(results: Sequence[Result], experiment: str, variant: Callable) -> dict[str, Result]:
    found = comparable(results, f"intention/{experiment}", model_of, variant=variant)
    return {model: found[model] for model in MODELS if model in found}


def _each_training(results: Sequence[Result], experiment: str) -> list[Result]:
    """Of the experiment's results that differ in the point cloud alone, the one with the first cloud."""
    own = [result for result in results if result.name == f"intention/{experiment}"]
    return list({_training(result): result for result in sorted(own, key=_cloud, reverse=True)}.values())


def _row(result: Result) -> Row:
    return model_of(result), _form(result)


def _own_form(result: Result) -> str:
    return "paper" if result.preset == "paper" else "regression"


def _form(result: Result) -> str:
    """That of a model in another form than the preset's own, '' else; MAML is a few-shot regressor in every preset."""
    return "regression" if _outside(result) else result.axes.get("form", "")


def _outside(result: Result) -> bool:
    """Whether it is of MAML, which the paper does not have here, in a preset whose own form is the paper's."""
    return model_of(result) == "maml" and _own_form(result) == "paper"


def _name(row: Row) -> str:
    model, form = row
    return label(model) + _FORMS[form]


def _dimension(result: Result) -> int:
    """Of the space, the plane first; policy distillation has no other."""
    return result.config["task"].get("dimension", 2)


def _cloud(result: Result) -> tuple[bool, str]:
    """The point cloud that a run draws, real ones first; policy distillation has none."""
    cloud = result.config["evaluation"].get("cloud", "")
    return cloud == "rabbit", cloud


def _training(result: Result) -> str:
    """The config but for the point cloud, which changes neither training nor errors."""
    config = result.config | {"axes": result.axes}
    for section in ("axes", "evaluation"):
        config[section] = {key: value for key, value in config[section].items() if not key.startswith("cloud")}
    return json.dumps(config | {"preset": result.preset}, sort_keys=True)
