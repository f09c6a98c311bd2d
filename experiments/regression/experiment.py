"""Any model of MODELS, trained on any task of TASKS that it fits: from the context of a function to values at targets.

What is measured follows from what the model predicts and from what is known of the task:

    mse                     squared error of the prediction, or of the mean of a predictive distribution
    log_likelihood          of a target, where the model predicts a distribution
    oracle_log_likelihood   the best that any model can reach: marginal or joint, as the model's likelihood is
    gap                     what the model lacks of it
    oracle_mse              squared error of the oracle's mean
    <method>_mse            squared error of each of the task's answers in closed form

With evaluation.counts each is measured for so many observations: 'mse@10'. All models see the same evaluation tasks.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.data import sources
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.evaluation import TaskEvaluation, most_parts, over_tasks, part_of
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.harness.size_classes import Sizes, choose_classes
from experiments.regression.fit import check_fit
from experiments.regression.measures import measures, oracle, over_counts, predictor, programs
from experiments.tasks import TASKS
from experiments.tasks.pixels import Pixels
from kvq_jax.domains import Count, Increasing
from kvq_jax.models import MODELS, Points

SECTIONS = ("task", "data", "model")


@dataclasses.dataclass(frozen=True)
class ImageSettings:
    """The config's `data` section, where the task has images."""

    name: str
    source: str  # digits, archive or tfds
    validation_images: Count  # the last of the training images, held out


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """What this experiment adds to the config's `evaluation` section."""

    counts: Increasing  # numbers of observations, increasing; none: as many as the task draws
    example_counts: Increasing

    def __post_init__(self):
        if bool(self.counts) != bool(self.example_counts):
            raise ValueError(
                f"counts={self.counts} and example_counts={self.example_counts}: both have numbers, or none"
            )


class Judged(NamedTuple):
    """What a part of the evaluation sees."""

    data: Any  # of the test split
    number: jax.Array  # of each evaluation task of the part


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build_named(TASKS, config.task, "config.task")
    model = settings.build_named(MODELS, config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    data, facts = _load(task, config.data, data_dir)
    judged = _resized(task, max((*evaluation.counts, *evaluation.example_counts), default=None), data["test"])

    def examples(variables, test, key):
        def one(task_key):
            sampled = getattr(judged, "picture", judged.sample)(task_key, test)
            predict = predictor(model, variables, sampled.target, task_key)
            arrays = _named("context", sampled.context) | _named("target", sampled.target)
            if not evaluation.example_counts:
                return arrays | oracle(judged, sampled) | predict(sampled.context)
            del arrays["context_mask"]
            return arrays | over_counts(predict, sampled.context, evaluation.example_counts)

        arrays = over_tasks(one, key, evaluation.example_tasks, evaluation.example_tasks)
        counts = {"counts": jnp.asarray(evaluation.example_counts)} if evaluation.example_counts else {}
        return arrays | counts

    classes = config.train.size_classes
    return regression(model, task, judged, data, evaluation, examples, evaluation.counts, facts, classes)


def regression(
    model: nn.Module,
    task: Any,
    judged: Any,
    data: dict[str, Any],
    evaluation: TaskEvaluation,
    examples: Callable,
    counts: Sequence[int] = (),
    facts: dict[str, Any] | None = None,
    size_classes: int = 0,
) -> Experiment:
    """The experiment of `model` on a task. Raises ConfigError where the model does not fit the task.

    Args:
      model: with the call of kvq_jax.models.MODELS.
      task: the sampler of training, as experiments.tasks.base describes one.
      judged: the sampler of evaluation.
      data: split -> what the samplers are given.
      evaluation: its tasks and batch_size are used.
      examples: Experiment.examples.
      counts: numbers of observations that are measured; none: as many as `judged` draws.
      facts: Experiment.facts.
      size_classes: of the batches, where the task has a law of sizes; 0: each task has a size of its own.
    """
    shapes = jax.eval_shape(task.sample, jax.random.key(0), data["train"])
    init = initialiser(model, task, data["train"])
    check_fit(model, init, shapes, [group[-1] for group in programs(counts)])

    parts = most_parts(evaluation.tasks, evaluation.batch_size)

    def part(test, number):
        return Judged(test, part_of(jnp.arange(evaluation.tasks), number, parts=parts))

    def evaluate(variables, test: Judged, key):
        def of_task(task_key):
            sampled = judged.sample(task_key, test.data)
            measure = measures(model, variables, judged, sampled, task_key)
            if not counts:
                return measure(sampled.context)
            values = over_counts(measure, sampled.context, counts)
            return {f"{name}@{count}": of[i] for name, of in values.items() for i, count in enumerate(counts)}

        return over_tasks(of_task, key, evaluation.tasks, evaluation.batch_size, test.number)

    parted = dict(evaluate=evaluate, parts=parts, part=part)
    return Experiment(
        init, examples=examples, data=data, facts=facts or {}, **parted, **training(model, task, size_classes)
    )


def initialiser(model: nn.Module, task: Any, data: Any) -> Callable:
    """Experiment.init of a model for task.sample(key, data): from shapes, nothing is computed but the parameters."""

    def init(key):
        shapes = jax.eval_shape(task.sample, key, data)
        return model.lazy_init(key, shapes.context, shapes.target, key=key, method="loss")

    return init


def training(model: nn.Module, task: Any, size_classes: int) -> dict[str, Any]:
    """Experiment.model, sample, loss and sizes. The loss is the mean of the model's own over the tasks of a batch.

    With size classes, if the task has a law of sizes, a model with a `loss_of_points` takes all points in one array.
    """
    if not size_classes or not hasattr(task, "law"):
        return dict(model=model, sample=task.sample, loss=_mean(model, "loss"))
    forms = {"loss": (task.law, task.fill), "loss_of_points": (task.law.of_points, task.fill_points)}
    method = "loss_of_points" if hasattr(model, "loss_of_points") else "loss"
    law, fill = forms[method]
    sizes = Sizes(choose_classes(law, size_classes, model.slot_costs), fill)
    return dict(model=model, sample=task.draw, loss=_mean(model, method), sizes=sizes)


def _mean(model: nn.Module, method: str) -> Callable:
    def loss(variables, batch, key):
        return model.apply(variables, batch.context, batch.target, key=key, method=method).mean(), ({}, {})

    return loss


def _resized(task: Any, context: int | None, data: Any) -> Any:
    """The sampler with exactly `context` observations, if any. Raises ConfigError where it has not so many points."""
    if context is None:
        return task
    try:
        resized = dataclasses.replace(task, min_context=context, max_context=context)
        jax.eval_shape(resized.sample, jax.random.key(0), data)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"config.evaluation.counts: {context} observations: {error}") from error
    return resized


def _load(task: Any, section: ConfigDict | None, data_dir: str | None) -> tuple[dict, dict]:
    """Split -> images [n, height, width] uint8, data of the sampler, or None; and how to quote the data."""
    if isinstance(task, Pixels) != (section is not None):
        raise ConfigError("config.data: a section for the task pixels, None for every other task")
    if section is None:
        return (task.data() if hasattr(task, "data") else NO_DATA), {}
    images = settings.build(ImageSettings, section, "config.data")
    data, held_out = sources.load(images.name, images.source, data_dir), images.validation_images
    train = data.train["image"]
    if not 0 < held_out < len(train):
        raise ConfigError(f"config.data.validation_images: {held_out} of {len(train)} training images")
    splits = {"train": train[:-held_out], "validation": train[-held_out:], "test": data.test["image"]}
    return splits, {"data": data.name}


def _named(name: str, points: Points) -> dict[str, jax.Array]:
    """Points as arrays of examples.npz: <name>_x, <name>_y and, where there is one, <name>_mask."""
    return {f"{name}_{part}": array for part, array in points._asdict().items() if array is not None}
