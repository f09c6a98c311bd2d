"""The largest number of a set (Set Transformer, Section 5.1, Table 1): by its absolute error."""

import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import Experiment
from experiments.set_transformer.networks import network, training
from experiments.tasks.maximum import Maximum

SECTIONS = ("task", "model")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(Maximum, config.task, "config.task")
    model = network(config)
    evaluation = settings.build(TaskEvaluation, evaluation, "config.evaluation")

    def predicted(variables, sets):
        return model.apply(variables, sets.x, mask=sets.mask)[..., 0, 0]

    def loss(variables, batch, key):
        return jnp.abs(predicted(variables, batch) - batch.truth).mean(), ({}, {})

    def evaluate(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            return {"mae": jnp.abs(predicted(variables, sampled) - sampled.truth)}

        return over_tasks(one, key, evaluation.tasks, evaluation.batch_size)

    def examples(variables, test, key):
        def one(task_key):
            sampled = task.sample(task_key, test)
            return {"size": sampled.mask.sum(), "truth": sampled.truth, "prediction": predicted(variables, sampled)}

        return over_tasks(one, key, evaluation.example_tasks, evaluation.batch_size)

    return Experiment(
        loss=loss,
        evaluate=evaluate,
        examples=examples,
        model=model,
        **training(model, task, (1,), config.train.size_classes),
    )
