"""CMANP on functions of Gaussian processes, looked at more closely: CMANP paper, Section 4.2.1 and appendix.

The experiment of meta_regression, but for two things: a model that predicts by blocks is judged with blocks of several sizes,
all on the same functions, and the examples are those of curves.
"""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.experiment import Experiment
from experiments.harness.results import Result
from experiments.harness.tables import Table
from experiments.neural_processes import analyses_figures, curves, gp_tables, meta_regression
from experiments.neural_processes.gp import GaussianProcess
from kvq_jax.models.neural_processes import NEURAL_PROCESSES

SECTIONS = meta_regression.SECTIONS


@dataclasses.dataclass(frozen=True)
class Evaluation(meta_regression.Evaluation):
    """The config's `evaluation` section, less what every experiment has. A curve's context has the last of `example_counts`."""

    block_sizes: tuple  # of targets, for a model that predicts by blocks; () for the others


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    own = settings.build(Evaluation, evaluation, "config.evaluation")
    shared = {name: value for name, value in evaluation.items() if name != "block_sizes"}
    made = meta_regression.build(config, shared, data_dir)
    model = settings.build_named(NEURAL_PROCESSES, config.model, "config.model")
    by_blocks = {size: meta_regression.build(_with_blocks(config, size), shared, data_dir) for size in own.block_sizes}
    x = jnp.linspace(*config.task.position, own.example_points)
    most = settings.build(GaussianProcess, config.task, "config.task").most_targets

    def evaluate(variables, test, key):
        values = made.evaluate(variables, test, key)
        for size, judged in by_blocks.items():
            found = judged.evaluate(variables, test, key)
            values |= {
                f"{name}@{size}": value for name, value in found.items() if name.endswith(("/target", "/gap_joint"))
            }
        return values

    def examples(variables, test, key):
        def predict(context, x):
            return meta_regression.curve(lambda x: model.apply(variables, context, x, key=key), x, most)

        return curves.predicted(predict, own.example_counts[-1], x, key)

    return dataclasses.replace(
        made, evaluate=evaluate, examples=examples, table=run_table, figure=analyses_figures.run_figure
    )


def run_table(results: Sequence[Result]) -> Table:
    """One run: the table of meta_regression, and the likelihoods with blocks of each size."""
    (result,) = results
    table, evaluation = gp_tables.run_table(results), result.config["evaluation"]
    rows = [
        (f"{gp_tables.KERNELS[kernel]}, blocks of {size}", [*_of_blocks(result, kernel, size), ""])
        for kernel in evaluation["kernels"]
        for size in evaluation["block_sizes"]
    ]
    return dataclasses.replace(table, rows=[*table.rows, *rows])


def _of_blocks(result: Result, kernel: str, size: int) -> list:
    target, gap = (gp_tables.log_likelihood(result, f"{kernel}/{what}@{size}") for what in ("target", "gap_joint"))
    return [target, "", "", gap]


def _with_blocks(config: ConfigDict, size: int) -> ConfigDict:
    return ConfigDict(config.to_dict() | {"model": config.model.to_dict() | {"block_size": size}})
