"""What policy distillation and the generalised Kabsch task show alike: names, the choice of results, the table."""
from collections.abc import Sequence

from experiments.harness.errors import UserError
from experiments.harness.results import Result, latest_preset
from experiments.harness.tables import Cell, Table, mark_best

# Names of the models as the paper writes them, in its order. MAML is none of its baselines here.
MODELS = {"intention": "Intention", "attention": "Attention", "neural_process": "Neural Process", "mlp": "MLP", "maml": "MAML"}
# Methods that are told what the models have to learn; a metric is named after each: '<method>_mse'.
ANSWERS = {
    "trilateration": "trilateration (oracle)",
    "linearised_intention": "Intention, untrained, linearised inputs",
    "umeyama": "Umeyama (similarity, oracle)",
    "affine": "affine least squares (oracle)",
}


def chosen(results: Sequence[Result], experiment: str) -> dict[str, Result]:
    """Model -> result of 'policy_distillation' or 'kabsch', in the order of MODELS: one preset, one variant of the task."""
    own = [result for result in results if result.name == f"intention/{experiment}"]
    preset = latest_preset(own)
    own = [result for result in own if result.preset == preset]
    variant = min(map(_variant, own), default=None)
    by_model = {result.config["model"]["name"]: result for result in own if _variant(result) == variant}
    return {model: by_model[model] for model in MODELS if model in by_model}


def _variant(result: Result) -> tuple:
    """What results that stand beside each other have in common. The least comes first: the plane, and a real point cloud."""
    if result.name != "intention/kabsch":
        return ()
    cloud = result.config["evaluation"]["cloud"]
    return result.config["task"]["dimension"], cloud == "rabbit", cloud


def required(results: Sequence[Result], experiment: str, figure: str) -> dict[str, Result]:
    """As `chosen`. Raises UserError where there is no result."""
    found = chosen(results, experiment)
    if not found:
        raise UserError(f"{figure} needs results of intention/{experiment}; there are none")
    return found


def answers(result: Result) -> dict[str, dict]:
    """Method -> summary of its squared error, for those of ANSWERS that the run has measured."""
    found = {method: result.metrics.get(f"trained/{method}_mse") for method in ANSWERS}
    return {method: summary for method, summary in found.items() if summary}


def error_table(results: Sequence[Result], title: str, figure: str, note: str, models: Sequence[str] = ()) -> Table:
    """Mean and median squared error of each model and of each method that knows the task.

    Args:
      results: one for each model, at least one.
      title, note: of the table, and of its caption.
      figure: of the paper, which prints no numbers.
      models: the models that get a row; those without a result get missing cells. Default: those of the results.
    """
    by_model = {result.config["model"]["name"]: result for result in results}
    first = results[0]
    models = list(models or by_model)
    summaries = [by_model[model].metrics["trained/mse"] if model in by_model else {"mean": None} for model in models]
    means = [Cell(summary["mean"], summary.get("sem")) for summary in summaries]
    medians = [Cell(summary.get("median")) for summary in summaries]
    best = ""
    if len(models) > 1:
        means, medians, best = mark_best(means), mark_best(medians), ", the best model in bold"
    rows = [(MODELS[model], list(cells)) for model, *cells in zip(models, means, medians)]
    for method, summary in answers(first).items():
        rows.append((ANSWERS[method], [Cell(summary["mean"], summary["sem"]), Cell(summary["median"])]))
    rows.append((f"the paper's {figure}", ["(curve)"] * 2))
    caption = (
        f"Preset {first.preset}, {first.content['steps']} steps, {len(first.content['seeds'])} seed(s); mean ± standard error "
        f"and median over {first.metrics['trained/mse']['n']} tasks{best}. {note} The paper prints no numbers for this figure."
    )
    return Table(title, ["predictions of", "MSE", "median"], rows, caption)


# Experiment -> the words of its table.
_WORDS = {
    "policy_distillation": dict(
        title="Policy distillation: squared error of a coordinate of the target",
        figure="Figure 9",
        note="To predict the mean of all targets has an MSE of 1.",
    ),
    "kabsch": dict(
        title="Generalised Kabsch: squared error of a coordinate of a query's image",
        figure="Figure 10",
        note="The oracles fit the same noisy pairs; without noise both are exact.",
    ),
}


def run_table(results: Sequence[Result]) -> Table:
    """One run: its error beside those of the methods that know the task."""
    return error_table(results, **_WORDS[results[0].config["experiment"].rpartition(".")[2]])


def table_of(experiment: str):
    """The table of an experiment: a function of all results, None without any of its own."""

    def table(results: Sequence[Result]) -> Table | None:
        found = chosen(results, experiment)
        return error_table(list(found.values()), **_WORDS[experiment], models=list(MODELS)) if found else None

    return table
