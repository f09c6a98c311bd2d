"""How few-shot regressors are initialised, trained and asked: what all regression experiments of the Intention paper share."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments.intention.tasks import RegressionTask


def predict(model: nn.Module, variables: Any, task: RegressionTask) -> jax.Array:
    """Predictions [..., M, dy] at the targets of a task, or of a batch of tasks."""
    return model.apply(variables, task.context_x, task.context_y, task.context_mask, task.target_x)


def initialiser(model: nn.Module, task: Any, train: Any) -> Callable:
    """Experiment.init of a model for task.sample(key, train): from shapes, nothing is computed but the parameters."""

    def init(key):
        shapes = jax.eval_shape(task.sample, key, train)
        return model.lazy_init(key, shapes.context_x, shapes.context_y, shapes.context_mask, shapes.target_x)

    return init


def squared_error(model: nn.Module) -> Callable:
    """Experiment.loss: the mean squared error at the targets."""

    def loss(variables, batch, key):
        return jnp.mean((predict(model, variables, batch) - batch.target_y) ** 2), ({}, {})

    return loss
