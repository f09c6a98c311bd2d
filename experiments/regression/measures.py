"""What a model predicts for a task, and what is measured of it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments.tasks import Task, has_oracle, oracle_log_likelihood
from kvq_jax.models import Points

_BEYOND_ANY_SPLIT = 2**32 - 1


def measures(model: nn.Module, variables: Any, sampler: Any, task: Task, task_key: jax.Array) -> Callable:
    """The function from a context of `task` to everything that is measured of it: name -> number."""
    model_key = _model_key(task_key)

    def measure(context: Points) -> dict[str, jax.Array]:
        given = task._replace(context=context)
        prediction = predictor(model, variables, task.target, task_key)(context)["prediction"]
        values = {"mse": squared_error(prediction, task.target)}
        if hasattr(model, "log_likelihood"):
            judge = model.apply(variables, context, task.target, key=model_key, method="log_likelihood")
            values["log_likelihood"] = judge.mean()
        if has_oracle(sampler):
            values["oracle_mse"] = squared_error(oracle(sampler, given)["oracle"], task.target)
            if "log_likelihood" in values:
                best = oracle_log_likelihood(sampler, given)[model.likelihood]
                values |= {"oracle_log_likelihood": best, "gap": best - values["log_likelihood"]}
        answers = sampler.answers(given) if hasattr(sampler, "answers") else {}
        return values | {f"{name}_mse": squared_error(answer, task.target) for name, answer in answers.items()}

    return measure


def predictor(model: nn.Module, variables: Any, target: Points, task_key: jax.Array) -> Callable:
    """The function from a context to `prediction` [M, dy] at the targets, and `prediction_std` of a distribution."""
    model_key = _model_key(task_key)

    def predict(context: Points) -> dict[str, jax.Array]:
        found = model.apply(variables, context, target.x, target.mask, key=model_key)
        if isinstance(found, jax.Array):
            return {"prediction": found}
        shape = (*target.x.shape[:-1], -1)
        return {"prediction": found.mean.reshape(shape), "prediction_std": jnp.sqrt(found.variance).reshape(shape)}

    return predict


def squared_error(prediction: jax.Array, target: Points) -> jax.Array:
    """The mean over the targets that are there and over outputs, []."""
    error = (prediction - target.y) ** 2
    return jnp.mean(error) if target.mask is None else jnp.mean(error, where=target.mask[..., None])


def over_counts(function: Callable[[Points], Any], context: Points, counts: Sequence[int]) -> Any:
    """`function` of the first `count` points of a context, for each of the increasing counts: leaves [C, ...].

    One count at a time: that takes less memory than all at once, and half the time. Counts within a factor of four
    share a program, in which masks tell them apart. Points that are in none of its contexts are cut off.
    """
    found = []
    for together in programs(counts):
        most = together[-1]

        def of_mask(mask, most=most):
            return function(Points(context.x[:most], context.y[:most], mask))

        found.append(jax.lax.map(of_mask, jnp.arange(most) < jnp.asarray(together)[:, None]))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *found)


def programs(counts: Sequence[int]) -> list[list[int]]:
    """The increasing counts in groups of which the last is less than four times the first."""
    groups, left = [], list(counts)
    while left:
        groups.append([count for count in left if 4 * count > left[-1] or count == left[-1]])
        left = left[: -len(groups[-1])]
    return groups[::-1]


def oracle(sampler: Any, task: Task) -> dict[str, jax.Array]:
    """`oracle` and `oracle_std` [M, 1] at the targets of a task; nothing where no oracle is known."""
    if not has_oracle(sampler):
        return {}
    law = sampler.oracle(task, task.target.x, task.target.mask)
    return {"oracle": law.mean[:, None], "oracle_std": jnp.sqrt(law.variance)[:, None]}


def _model_key(task_key: jax.Array) -> jax.Array:
    """For what a model draws. The sampler splits the key of the task itself, and child i is `fold_in(task_key, i)`."""
    return jax.random.fold_in(task_key, _BEYOND_ANY_SPLIT)
