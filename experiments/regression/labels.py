"""What tables and figures of regressions call models, methods and metrics."""

from collections.abc import Iterable

from experiments.harness.results import Result
from kvq_jax.models import MODELS

PHASES = ("trained", "untrained")
# Methods in closed form that are told what models have to learn. A metric is named after each: '<method>_mse'.
METHODS = {
    "trilateration": "trilateration (oracle)",
    "linearised_intention": "Intention, untrained, linearised inputs",
    "umeyama": "Umeyama (similarity, oracle)",
    "affine": "affine least squares (oracle)",
}
METRICS = {
    "mse": "squared error",
    "log_likelihood": "log-likelihood of a target",
    "oracle_log_likelihood": "log-likelihood, oracle",
    "gap": "gap to the oracle",
    "oracle_mse": "squared error, oracle",
} | {f"{method}_mse": f"squared error, {name}" for method, name in METHODS.items()}


def model_of(result: Result) -> str:
    """The model as the config's axes name it, where they do; else its class."""
    return result.axes["model"] if "model" in result.axes else result.config["model"]["name"]


def label(model: str) -> str:
    """The name of a model as papers write it."""
    return MODELS[model].label if model in MODELS else model


def by_count(result: Result, phase: str, metric: str = "mse") -> dict[int, dict]:
    """Number of observations -> summary of a metric, of the 'trained' or the 'untrained' model."""
    prefix = f"{phase}/{metric}@"
    found = {int(name.removeprefix(prefix)): of for name, of in result.metrics.items() if name.startswith(prefix)}
    return dict(sorted(found.items()))


def measured_of(result: Result, names: Iterable[str] = METRICS) -> list[str]:
    """Those of `names` that a run has measured, with any number of observations."""
    own = {name.removeprefix("trained/").partition("@")[0] for name in result.metrics if name.startswith("trained/")}
    return [name for name in names if name in own]
