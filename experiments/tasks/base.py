"""What a task is, whatever paper it comes from: points of one function that a model sees, and points that it predicts.

A sampler is a frozen dataclass whose fields are the config's `task` section. Its methods:

    sample(key, data) -> Task           pure, of fixed shapes: numbers of points vary by mask. data: of a split, or None
    picture(key, data) -> Task          optional: the same function, with targets that can be drawn
    law                                 optional: the law of numbers of points that the tasks of a batch may share, with
    draw(key, data)                     what is random in a task;
    fill(draws, slots, size)            the Task in slots of context and targets, and
    fill_points(draws, slots, size)     in slots of context and all points: the target holds the context first
    data() -> {split: arrays}           optional: the sampler's own data, of the splits train, validation and test
    answers(task) -> {method: [M, dy]}  optional: predictions in closed form, of methods that are told what to learn
    oracle(task, x, mask)               optional: the JointNormal law of targets of one output, given the truth
    exact                               with oracle(): whether the targets are drawn from this law
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from kvq_jax.models.neural_processes.predictive import count, factorised, log_prob
from kvq_jax.models.points import Points
from kvq_jax.nn.predictions import JointNormal
from kvq_jax.ops.linalg import one_task_at_a_time


class Task(NamedTuple):
    """One function: context [N, dx] -> [N, dy], targets [M, dx] -> [M, dy]. A batch of tasks has leading dimensions."""

    context: Points
    target: Points
    truth: Any = None  # what oracle() or answers() must know of the function, and no model sees


def has_oracle(sampler: Any) -> bool:
    """Whether the best possible likelihood of a sampler's tasks is known."""
    return hasattr(sampler, "oracle") and sampler.exact


def oracle_log_likelihood(sampler: Any, task: Task) -> dict[str, jax.Array]:
    """log p(targets | context, truth) / M of one task: each target alone ('marginal') and all together ('joint')."""

    @one_task_at_a_time
    @jax.jit  # traced once, for all platforms
    def of_kinds(task):
        joint = sampler.oracle(task, task.target.x, task.target.mask)
        points = count(task.target.mask, len(task.target.x))
        kinds = {"marginal": marginals(joint), "joint": joint}
        return {kind: log_prob(law, task.target.y, task.target.mask) / points for kind, law in kinds.items()}

    return of_kinds(task)


def marginals(joint: JointNormal) -> dist.Distribution:
    """The normal of each target alone: batch [M], event [1]."""
    return factorised(joint.mean[..., None], joint.stddev[..., None])


def student_noise(key: jax.Array, scale: tuple, freedom: float, shape: tuple[int, ...]) -> jax.Array:
    """Noise by Student's t, times a scale that is uniform between the two of `scale` for each number."""
    scale_key, noise_key = jax.random.split(key)
    scales = scale[0] + (scale[1] - scale[0]) * jax.random.uniform(scale_key, shape)
    return scales * jax.random.t(noise_key, freedom, shape)


def first_observed(key: jax.Array, sampler: Any) -> jax.Array:
    """The mask [max_context] of a context of the first n points, n uniform in min_context..max_context."""
    n = jax.random.randint(key, (), sampler.min_context, sampler.max_context + 1)
    return jnp.arange(sampler.max_context) < n


def without_replacement(key: jax.Array, total: int, count: int) -> jax.Array:
    """`count` of 0..total-1 in random order, [count]: the places of the largest of `total` random numbers.

    The numbers have 30 random bits, as normal floats of both signs: two of them tie, and are then in the order of their
    places, once in 2^30 pairs. On CPUs the largest few of floats take a quarter of the time of sorting all.
    """
    bits = (jax.random.bits(key, (total,), jnp.uint32) & jnp.uint32(0x9FFFFFFF)) | jnp.uint32(0x20000000)
    return jax.lax.top_k(jax.lax.bitcast_convert_type(bits, jnp.float32), count)[1]


def each_once(key: jax.Array, total: int, count: int) -> jax.Array:
    """`count` of 0..total-1 in random order, or all in their own order where there are not more."""
    return jnp.arange(total) if count >= total else without_replacement(jax.random.fold_in(key, 2), total, count)


def check_context(sampler: Any, points: int) -> None:
    """Raises ValueError unless 0 <= min_context <= max_context <= points."""
    if not 0 <= sampler.min_context <= sampler.max_context <= points:
        raise ValueError(
            f"0 <= min_context <= max_context <= {points} points does not hold for "
            f"min_context={sampler.min_context}, max_context={sampler.max_context}"
        )
