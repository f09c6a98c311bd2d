"""Few-shot regression whose answer is known in closed form: what policy distillation and the generalised Kabsch task share.

A task has `sample(key, data)` and `answers(task)`, the predictions of methods that are told what the models have to learn.
The loss is the mean squared error, and the evaluation measures models and methods on the same tasks.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from experiments.harness import settings
from experiments.harness.evaluation import over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.intention import regressors
from experiments.intention.known_answer_tables import run_table
from kvq_jax.models import FEW_SHOT_REGRESSORS, MLPRegressor

# The paper's fourth model of these experiments is an MLP, where its other regressions have MAML.
REGRESSORS = FEW_SHOT_REGRESSORS | {"mlp": MLPRegressor}


def build_model(section: Mapping[str, Any], printed: Mapping[str, type]) -> tuple[nn.Module, bool]:
    """The model of the config's `model` section, and whether it has the form in which the paper prints it for this experiment.

    A few-shot regressor; or one of the classes `printed`, where the section has a key `form`, whose one value is 'paper'.
    Raises ConfigError.
    """
    fields = dict(section)
    if "form" not in fields:
        return settings.build_named(REGRESSORS, fields, "config.model"), False
    table = settings.choose({"paper": printed}, fields.pop("form"), "config.model.form")
    return settings.build_named(table, fields, "config.model"), True


def experiment(task: Any, model: nn.Module, evaluation: Any, examples: Callable, figure: Callable) -> Experiment:
    """The experiment of `model` on `task`: metrics 'mse', of the model, and '<method>_mse', of each of the task's answers.

    Args:
      task: with sample() and answers().
      model: a few-shot regressor (kvq_jax.models).
      evaluation: with `tasks` and `batch_size`.
      examples, figure: as in Experiment.
    """

    def evaluate(variables, test, key):
        def errors(task_key):
            sampled = task.sample(task_key, test)
            answers = {"mse": regressors.predict(model, variables, sampled)}
            answers |= {f"{name}_mse": answer for name, answer in task.answers(sampled).items()}
            return {name: jnp.mean((answer - sampled.target_y) ** 2) for name, answer in answers.items()}

        return over_tasks(errors, key, evaluation.tasks, evaluation.batch_size)

    init, loss = regressors.initialiser(model, task, None), regressors.squared_error(model)
    return Experiment(init, task.sample, loss, evaluate, examples, NO_DATA, run_table, figure)
