"""From the value of each evaluation task to its mean and standard error."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from experiments.harness.experiment import PyTree
from kvq_jax.domains import Count

Summary = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """The config's `evaluation` section of an experiment judged on tasks, without what all experiments share."""

    tasks: Count
    batch_size: Count  # tasks evaluated at once
    example_tasks: Count  # tasks kept for the figures


def over_tasks(
    function: Callable[[jax.Array], Any], key: jax.Array, tasks: int, batch_size: int, number: jax.Array | None = None
) -> Any:
    """function(key) for the keys of `tasks` tasks, leaves [tasks, ...]. At most `batch_size` are in memory at once.

    number [n]: of the tasks that are asked for; leaves are [n, ...] then. None: all.
    """
    keys = jax.random.split(key, tasks)
    return jax.lax.map(function, keys if number is None else keys[number], batch_size=batch_size)


def most_parts(tasks: int, batch_size: int, limit: int = 20) -> int:
    """The largest number of equal parts, up to `limit`, in which tasks are still whole batches; 1 where none is."""
    return max(parts for parts in range(1, limit + 1) if parts == 1 or tasks % (parts * batch_size) == 0)


def part_of(data: PyTree, number: jax.Array, *, parts: int) -> PyTree:
    """One of equal parts of the leading axis of every leaf; with `parts` bound, an Experiment.part."""

    def of_leaf(leaf):
        size = len(leaf) // parts
        return jax.lax.dynamic_slice_in_dim(leaf, number * size, size)

    return jax.tree.map(of_leaf, data)


def summarise(values: Mapping[str, jax.Array]) -> dict[str, Summary]:
    """Mean, standard error, median and n of each metric.

    Args:
      values: name -> [S, tasks], the value of each evaluation task under each of S seeds.

    Returns:
      name -> {mean, sem, median, n, seeds}. The standard error is over the n tasks, each averaged over the seeds;
      `seeds` holds the mean of each seed. A number that is not finite is None: JSON has no NaN.
    """
    return {name: _summary(np.asarray(array, np.float64)) for name, array in values.items()}


def single(value: float) -> Summary:
    """The summary of one measured number, which has no standard error: n is 1 and sem 0."""
    return _summary(np.full((1, 1), value, np.float64))


def _summary(values: np.ndarray) -> Summary:
    of_task = values.mean(0)
    n = len(of_task)
    numbers = {
        "mean": values.mean(),
        "sem": of_task.std(ddof=1) / math.sqrt(n) if n > 1 else 0.0,
        "median": np.median(values),
    }
    seeds = [_finite(mean) for mean in values.mean(1)]
    return {name: _finite(number) for name, number in numbers.items()} | {"n": n, "seeds": seeds}


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
