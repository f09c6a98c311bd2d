"""Whether a model can learn a task, from shapes alone."""

from collections.abc import Callable, Sequence

import jax
from flax import linen as nn

from experiments.harness.errors import ConfigError, first_line
from experiments.regression.measures import predictor
from experiments.tasks import Task
from kvq_jax.models import Points


def check_fit(model: nn.Module, init: Callable, task: Task, slots: Sequence[int] = ()) -> None:
    """Raises ConfigError, one line that says why, where a model cannot learn a task. Nothing is computed but shapes.

    Args:
      model, init: the model and its Experiment.init.
      task: shapes and types of a task.
      slots: numbers of slots of other contexts that the model will see.
    """
    misfit = f"config.model: {type(model).__name__} does not fit config.task:"

    def predict(variables, context, target):
        return predictor(model, variables, target, jax.random.key(0))(context)["prediction"]

    try:
        variables = jax.eval_shape(init, jax.random.key(0))
        predicted = jax.eval_shape(predict, variables, task.context, task.target)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{misfit} {first_line(error)}") from error
    if predicted.shape != task.target.y.shape:
        raise ConfigError(f"{misfit} it predicts {predicted.shape} where targets are {task.target.y.shape}")
    fewer = [] if task.context.mask is None else [task.context.x.shape[-2] - 1]
    for number in (*slots, *fewer):
        try:
            jax.eval_shape(predict, variables, _with_slots(task.context, number), task.target)
        except (TypeError, ValueError) as error:
            reason = "it needs the same number of context points in every task"
            raise ConfigError(f"{misfit} {reason} ({first_line(error)})") from error


def _with_slots(context: Points, number: int) -> Points:
    """The shapes of a masked context in `number` slots."""
    *lead, _, _ = context.x.shape
    x, y = (jax.ShapeDtypeStruct((*lead, number, part.shape[-1]), part.dtype) for part in context[:2])
    return Points(x, y, jax.ShapeDtypeStruct((*lead, number), bool))
