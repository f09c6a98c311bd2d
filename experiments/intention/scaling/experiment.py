"""The scaling experiment of the Intention paper (Section 2, Appendix 2, Figure 3): least squares as a task to learn.

A task is a set of pairs (x, y) with y = x w; the model sees the pairs and predicts w. One run trains one model of one
latent size at one dimension. configs/intention/scaling.py doubles the size until the error is small; Figure 3 reads the
sizes off.
"""

import dataclasses

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.tasks.least_squares import LeastSquares, oracle
from kvq_jax.domains import Positive
from kvq_jax.models import WEIGHT_REGRESSORS

SECTIONS = ("task", "model")


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section."""

    threshold: Positive  # the search for a size ends at this mean squared error of a coordinate, whose variance is 1


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(LeastSquares, config.task, "config.task")
    model = settings.build_named(WEIGHT_REGRESSORS, config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")

    def init(key):
        x, y = (jax.ShapeDtypeStruct((task.points, width), jnp.float32) for width in (task.dimension, 1))
        return model.lazy_init(key, x, y)

    def loss(variables, batch, key):
        return jnp.mean((model.apply(variables, batch.x, batch.y) - batch.weights) ** 2), ({}, {})

    def evaluate(variables, test, key):
        def errors(task_key):
            sampled = task.sample(task_key, test)
            predictions = {"mse": model.apply(variables, sampled.x, sampled.y), "least_squares_mse": oracle(sampled)}
            return {name: jnp.mean((weights - sampled.weights) ** 2) for name, weights in predictions.items()}

        return over_tasks(errors, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            return {"weights": sampled.weights, "prediction": model.apply(variables, sampled.x, sampled.y)}

        return over_tasks(one, key, evaluation.example_tasks, evaluation.batch_size)

    return Experiment(init, task.sample, loss, evaluate, examples, NO_DATA, model=model)
