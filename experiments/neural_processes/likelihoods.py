"""Likelihoods in results: which one judges a model, and the cell of a table that shows it."""

from experiments.harness.results import Result
from experiments.harness.tables import Cell, measured
from kvq_jax.models import MODELS

LIKELIHOODS = {"marginal": "each target alone", "joint": "all targets jointly"}  # in the order of tables -> in words


def kind(model: str) -> str:
    """The likelihood that a model is measured by: 'marginal' or 'joint'."""
    return MODELS[model].cls.likelihood


def log_likelihood(result: Result | None, metric: str) -> Cell:
    """The cell of the trained model's `<where>/<what>`; missing where there is no such number."""
    return measured(result.metrics.get(f"trained/{metric}") if result else None)
