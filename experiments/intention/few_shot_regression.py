"""Few-shot regression with four models (Intention paper, Section 5.1, Appendix 4; Figures 6, 7 and 13).

A model sees a masked context and predicts the targets; the loss is their mean squared error. After training, and before
it, the error is measured against the number of observations, on the same tasks for every count and every model.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.data import sources
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.intention import figures, regressors, tables
from experiments.intention.tasks import Pixels, Sine
from kvq_jax.models import FEW_SHOT_REGRESSORS

SECTIONS = ("task", "data", "model")

_TASKS = {"sine": Sine, "pixels": Pixels}


@dataclasses.dataclass(frozen=True)
class ImageSettings:
    """The config's `data` section, where the task has images."""

    name: str
    source: str  # digits, archive or tfds
    validation_images: int  # the last of the training images, held out


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """The config's `evaluation` section, less what every experiment has."""

    counts: tuple  # numbers of observations, increasing
    example_counts: tuple

    def __post_init__(self):
        for name in ("counts", "example_counts"):
            if not getattr(self, name) or list(getattr(self, name)) != sorted(set(getattr(self, name))):
                raise ValueError(f"{name} must be increasing numbers, got {getattr(self, name)}")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and sources.DataError."""
    task = settings.build_named(_TASKS, config.task, "config.task")
    model = settings.build_named(FEW_SHOT_REGRESSORS, config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    data, facts = _load(config.data, data_dir)
    largest = max(*evaluation.counts, *evaluation.example_counts)
    judged = _resized(task, largest)
    example = jax.eval_shape(judged.sample, jax.random.key(0), data["test"])
    if largest > len(example.target_x):
        raise ConfigError(
            f"config.evaluation.counts: {largest} observations asked for, {len(example.target_x)} points exist"
        )

    init, loss = regressors.initialiser(model, task, data["train"]), regressors.squared_error(model)
    predict = functools.partial(_predict_for_counts, model)

    def evaluate(variables, test, key):
        def errors(task_key):
            sampled = judged.sample(task_key, test)
            return jnp.mean((predict(variables, sampled, evaluation.counts) - sampled.target_y) ** 2, (-2, -1))

        errors = over_tasks(errors, key, evaluation.tasks, evaluation.batch_size)
        return {f"mse@{count}": errors[:, index] for index, count in enumerate(evaluation.counts)}

    def examples(variables, test, key):
        def one(task_key):
            sampled = judged.picture(task_key, test)
            return sampled._asdict() | {"prediction": predict(variables, sampled, evaluation.example_counts)}

        arrays = over_tasks(one, key, evaluation.example_tasks, evaluation.example_tasks)
        arrays.pop("context_mask")
        return arrays | {"counts": jnp.asarray(evaluation.example_counts)}

    return Experiment(init, task.sample, loss, evaluate, examples, data, tables.mse_table, figures.run_figure, facts)


def _predict_for_counts(model, variables, task, counts) -> jax.Array:
    """Predictions [counts, M, dy] from the first `count` points of a context, for each of the increasing counts.

    One count at a time, which takes less memory than all at once and half the time. Counts within a factor of four share a
    program, in which masks tell them apart; points that are in none of its contexts are cut off.
    """
    predictions, left = [], list(counts)
    while left:
        most = left[-1]
        together = [count for count in left if 4 * count > most]
        left = left[: -len(together)]

        def predict(mask, most=most):
            return model.apply(variables, task.context_x[:most], task.context_y[:most], mask, task.target_x)

        predictions.append(jax.lax.map(predict, jnp.arange(most) < jnp.asarray(together)[:, None]))
    return jnp.concatenate(predictions[::-1])


def _resized(task, context: int):
    """The task with exactly `context` observations. Raises ConfigError where it has not so many points."""
    try:
        return dataclasses.replace(task, min_context=context, max_context=context)
    except ValueError as error:
        raise ConfigError(f"config.evaluation.counts: {error}") from error


def _load(section: ConfigDict | None, data_dir: str | None) -> tuple[dict, dict]:
    """Images [n, height, width] uint8 of each split, or None for each where the task needs no data; and how to quote them."""
    if section is None:
        return NO_DATA, {}
    images = settings.build(ImageSettings, section, "config.data")
    data, held_out = sources.load(images.name, images.source, data_dir), images.validation_images
    train = data.train["image"]
    if not 0 < held_out < len(train):
        raise ConfigError(f"config.data.validation_images: {held_out} of {len(train)} training images")
    splits = {"train": train[:-held_out], "validation": train[-held_out:], "test": data.test["image"]}
    return splits, {"data": data.name}
