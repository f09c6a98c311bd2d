"""Few-shot regression whose answer is known in closed form: what policy distillation and the generalised Kabsch task share.

A task has `sample(key, data)` and `answers(task)`, the predictions of methods that are told what the models have to learn.
The loss is the mean squared error, and the evaluation measures models and methods on the same tasks.
"""
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments.harness.evaluation import over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.intention.known_answer_tables import run_table
from experiments.intention.tasks import RegressionTask
from kvq_jax.models import FEW_SHOT_REGRESSORS, MLPRegressor

# The paper's fourth model of these experiments is an MLP, where its other regressions have MAML.
REGRESSORS = FEW_SHOT_REGRESSORS | {"mlp": MLPRegressor}


def predict(model: nn.Module, variables: Any, task: RegressionTask) -> jax.Array:
    """Predictions [..., M, dy] at the targets of a task, or of a batch of tasks."""
    return model.apply(variables, task.context_x, task.context_y, task.context_mask, task.target_x)


def experiment(task: Any, model: nn.Module, evaluation: Any, examples: Callable, figure: Callable) -> Experiment:
    """The experiment of `model` on `task`: metrics 'mse', of the model, and '<method>_mse', of each of the task's answers.

    Args:
      task: with sample() and answers().
      model: a few-shot regressor (kvq_jax.models).
      evaluation: with `tasks` and `batch_size`.
      examples, figure: as in Experiment.
    """

    def init(key):
        shapes = jax.eval_shape(task.sample, key, None)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return model.init(key, zeros.context_x, zeros.context_y, zeros.context_mask, zeros.target_x)

    def loss(variables, batch, key):
        return jnp.mean((predict(model, variables, batch) - batch.target_y) ** 2), ({}, {})

    def evaluate(variables, test, key):
        def errors(task_key):
            sampled = task.sample(task_key, test)
            answers = {"mse": predict(model, variables, sampled)}
            answers |= {f"{name}_mse": answer for name, answer in task.answers(sampled).items()}
            return {name: jnp.mean((answer - sampled.target_y) ** 2) for name, answer in answers.items()}

        return over_tasks(errors, key, evaluation.tasks, evaluation.batch_size)

    return Experiment(init, task.sample, loss, evaluate, examples, NO_DATA, run_table, figure)
