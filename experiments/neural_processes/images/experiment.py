"""Image completion (CMANP paper, Section 4.1, Table 3): trained on images, judged on each part of the test images.

What is measured of each image of a part, 'seen' and 'unseen' classes of EMNIST and 'test' of other data:

    <part>/target                     log-likelihood for each target, summed over channels
    <part>/bits_per_dim               the same in bits: see `bits_per_dim`
    <part>/reference_pixelwise        <part>/target of references.Pixelwise
    <part>/reference_gp               <part>/target of references.SmoothImages, each target alone
    <part>/reference_gp_joint         and all targets jointly, over their number
    <part>/target@10                  <part>/target after so many observed pixels; the targets are the same for all
    <part>/squared_error@10           of the predictive mean at these targets, mean over channels

The last two are of the first `evaluation.subset` images. For the examples see `completion`.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.data import image_sets
from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.harness.experiment import Experiment
from experiments.harness.size_classes import SizeClasses, choose_classes
from experiments.neural_processes.images import references
from experiments.neural_processes.images.completion import check_shown, completed
from experiments.regression.experiment import initialiser, training
from experiments.regression.measures import measures, over_counts
from experiments.tasks import Task
from experiments.tasks.base import each_once
from experiments.tasks.image_completion import ImageCompletion
from kvq_jax.domains import Count, Increasing, Natural, Positive
from kvq_jax.models import Points, family

SECTIONS = ("task", "data", "model")


@dataclasses.dataclass(frozen=True)
class ImageSettings:
    """The config's `data` section: see experiments.data.image_sets."""

    name: str  # digits, mnist, emnist or celeba
    source: str  # digits, archive or tfds
    size: Count  # pixels along each side
    crop: bool
    validation_images: Count
    seen: tuple[Natural, Natural]  # (first, last): classes first to last - 1 are seen


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The config's `evaluation` section, without what all experiments share."""

    tasks: Count  # images of each part, chosen once; all, where there are not more
    batch_size: Count  # images evaluated at once
    subset: Count  # images that are measured by number of observed pixels
    counts: Increasing  # numbers of observed pixels, increasing
    least_std: Positive  # of the pixelwise reference: some pixels are black in all training images
    fitted_images: Count  # training images that the Gaussian process is fitted to,
    fitted_pixels: Count  # and the number of their pixels
    example_images: Count  # of each part
    example_counts: Increasing  # numbers of observed pixels of the pictures, increasing; all pixels come after them
    example_samples: Count
    example_shown: tuple[str, ...]  # names of completion.DEMOS: what else is shown of these images

    def __post_init__(self):
        for name in ("counts", "example_counts"):
            if not getattr(self, name):
                raise ValueError(f"{name} must be numbers, got none")


class TestData(NamedTuple):
    """The test split: all that the evaluation sees."""

    parts: dict[str, jax.Array]  # name -> images [n, height, width, channels] uint8
    pixelwise: references.Pixelwise
    fitted: jax.Array  # training images [n, height, width, channels] uint8


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError and experiments.data.errors.DataError."""
    task = settings.build(ImageCompletion, config.task, "config.task")
    model = settings.build_named(family("neural_process"), config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    section = dataclasses.asdict(settings.build(ImageSettings, config.data, "config.data"))
    images = image_sets.load(section.pop("name"), section.pop("source"), data_dir, **section)
    _check(task, model, evaluation, images.train.shape[1:])
    pixelwise = references.pixelwise(images.train, evaluation.least_std)
    test = TestData(images.test, pixelwise, images.train[: evaluation.fitted_images])
    data = {"train": images.train, "validation": images.validation, "test": test}
    judged = dataclasses.replace(task, target_cap=0)  # the cap is the training's
    classes = choose_classes(judged.law, config.train.size_classes)

    def evaluate(variables, test, key):
        judge = Judge(model, variables, judged, classes, evaluation)
        smooth = references.fit(test.fitted, jax.random.fold_in(key, 1), evaluation.fitted_pixels)
        found = {}
        for part, images in test.parts.items():
            values = judge.tasks(images, test.pixelwise, smooth, key) | judge.by_count(images, key)
            found |= {f"{part}/{name}": value for name, value in values.items()}
        return found

    def examples(variables, test, key):
        def of_image(given):
            asked = evaluation.example_counts, evaluation.example_samples, judged.most_targets
            return completed(model, variables, *given, *asked, evaluation.example_shown)

        keys = jax.random.split(key, evaluation.example_images)
        chosen = [images[each_once(key, len(images), len(keys))] for images in test.parts.values()]
        found = [jax.lax.map(of_image, (images, keys), batch_size=len(keys)) for images in chosen]
        counts = jnp.asarray([*evaluation.example_counts, chosen[0][0, ..., 0].size])
        return jax.tree.map(lambda *parts: jnp.stack(parts), *found) | {"counts": counts}

    trained = training(model, task, config.train.size_classes)
    described = dict(evaluate=evaluate, examples=examples, data=data, facts={"data": images.name})
    return Experiment(initialiser(model, task, images.train), **described, **trained)


@dataclasses.dataclass(frozen=True)
class Judge:
    """A model on images of the test."""

    model: nn.Module
    variables: Any
    task: ImageCompletion
    classes: SizeClasses
    settings: Evaluation

    def tasks(
        self, images: jax.Array, pixelwise: references.Pixelwise, smooth: references.SmoothImages, key: jax.Array
    ) -> dict[str, jax.Array]:
        """Likelihoods of model and references with N and M of the task's law: name -> [tasks]."""
        chosen = each_once(key, len(images), self.settings.tasks)

        def draw(task_key, image):
            return self.task.draw(jax.random.fold_in(task_key, 1), images, image)

        def of_image(task_key, draws, slots, size):
            sampled = self.task.fill(draws, slots, size)

            given, model_key = (sampled.context, sampled.target), jax.random.fold_in(task_key, 2)
            target = self.model.apply(self.variables, *given, key=model_key, method="log_likelihood")
            gp = references.smooth_log_likelihood(smooth, sampled)
            return {
                "target": target,
                "bits_per_dim": bits_per_dim(target, images.shape[-1]),
                "reference_pixelwise": references.pixelwise_log_likelihood(pixelwise, sampled.target),
                "reference_gp": gp["marginal"],
                "reference_gp_joint": gp["joint"],
            }

        return self.classes.map(of_image, draw, key, len(chosen), self.settings.batch_size, given=(chosen,))

    def by_count(self, images: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
        """Likelihood and squared error after evaluation.counts observed pixels: name@count -> [subset]."""
        counts, most = self.settings.counts, self.settings.counts[-1]
        chosen = each_once(key, len(images), self.settings.subset)

        def of_image(given):
            task_key, image = given
            draws = self.task.draw(jax.random.fold_in(task_key, 1), images, image)
            context, target = (Points(*(rows[part] for rows in draws[:2])) for part in (slice(most), slice(most, None)))
            measure = measures(self.model, self.variables, self.task, Task(context, target), task_key)
            found = over_counts(measure, context, counts)
            values = {"target": found["log_likelihood"], "squared_error": found["mse"]}
            return {f"{name}@{count}": of[i] for name, of in values.items() for i, count in enumerate(counts)}

        given = jax.random.split(key, len(chosen)), chosen
        return jax.lax.map(of_image, given, batch_size=self.settings.batch_size)


def bits_per_dim(log_likelihood: jax.Array, channels: int) -> jax.Array:
    """The mean number of bits for a channel of a pixel, from the log-likelihood of pixels y = v / 255 - 1/2.

    A density of y is one of v over 255: log p(v) = log p(y) - log 255 for each channel. The values v are a unit apart,
    so p(v) is about the probability of a value. It is no length of a code: a density can be above 1, and then the bits
    are negative.
    """
    return (math.log(255) - log_likelihood / channels) / math.log(2)


def _check(task: ImageCompletion, model: nn.Module, evaluation: Evaluation, shape: tuple[int, int, int]) -> None:
    """Raises ConfigError where images of a shape do not fit the task, the model or the evaluation."""
    height, width, channels = shape
    if task.max_points > height * width:
        raise ConfigError(f"config.task.max_points: {task.max_points}, but the images have {height * width} pixels")
    if model.dim_y != channels:
        raise ConfigError(f"config.model.dim_y: {model.dim_y}, but the images have {channels} channel(s)")
    limits = {"counts": task.max_points - 1, "example_counts": height * width}
    for name, limit in limits.items():
        if getattr(evaluation, name)[-1] >= limit:
            last = getattr(evaluation, name)[-1]
            raise ConfigError(f"config.evaluation.{name}: {last} observed pixels leave no target of {limit}")
    check_shown(evaluation.example_shown, model, shape)
