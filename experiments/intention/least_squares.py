"""The scaling experiment of the Intention paper (Section 4, Appendix 2, Figure 3): least squares as a task to learn.

A task is a set of pairs (x, y) with y = x w; the model sees the pairs and predicts w. One run trains one model of one latent
size at one dimension; configs/intention/scaling.py doubles the size until the error is small, and Figure 3 reads the sizes off.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import TaskEvaluation, over_tasks
from experiments.harness.experiment import NO_DATA, Experiment
from experiments.intention import scaling
from kvq_jax.models import WEIGHT_REGRESSORS
from kvq_jax.ops import intention_weights

SECTIONS = ("task", "model")


class LinearTask(NamedTuple):
    """Points of one linear function, and its weights."""

    x: jax.Array  # [N, d]
    y: jax.Array  # [N, 1]
    weights: jax.Array  # [d]


@dataclasses.dataclass(frozen=True)
class LeastSquares:
    """y = x w without noise, w ~ N(0, I_d) and x ~ N(0, I_d) (Appendix 2, Eq. 6)."""

    points: int
    dimension: int

    def __post_init__(self):
        if self.points < 1 or self.dimension < 1:
            raise ValueError(f"points and dimension must be at least 1, got {self.points} and {self.dimension}")

    def sample(self, key: jax.Array, data: None) -> LinearTask:
        """One function and its points. `data` is not used."""
        normal = jax.random.normal(
            key, (1 + self.points, self.dimension)
        )  # one draw: random numbers are slow to compile
        weights, x = normal[0], normal[1:]
        return LinearTask(x, jnp.matmul(x, weights[:, None], precision="highest"), weights)


def oracle(task: LinearTask) -> jax.Array:
    """The weights pinv(x) y, [d]: exact where points >= dimension, up to rounding. With as many points as dimensions the
    system is square and sometimes so ill conditioned that in float32 the rounding shows in the mean, not in the median."""
    return intention_weights(task.x, task.y, alpha=0)[..., 0]


@dataclasses.dataclass(frozen=True)
class Evaluation(TaskEvaluation):
    """The config's `evaluation` section, less what every experiment has."""

    threshold: float  # of the mean squared error of a coordinate, whose variance is 1: where the search for a size ends

    def __post_init__(self):
        if not self.threshold > 0:
            raise ValueError(f"threshold must be positive, got {self.threshold}")


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build(LeastSquares, config.task, "config.task")
    model = settings.build_named(WEIGHT_REGRESSORS, config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")

    def init(key):
        return model.init(key, jnp.zeros((task.points, task.dimension)), jnp.zeros((task.points, 1)))

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

    return Experiment(init, task.sample, loss, evaluate, examples, NO_DATA, scaling.run_table, scaling.run_figure)
