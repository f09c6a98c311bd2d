"""Bandit rounds played by a neural process: UCB on its predictions from earlier rounds (CMANP paper, Appendix C.2).

After a round the model is told (x, r): the entry of r for the arm that was pulled is its reward, all others are noise,
N(0, 1). All wheels play at once, in one compiled loop. A model with a state of constant size takes each round into its
state, one with a cache into its cache; any other sees the whole history, in a buffer with a mask.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.distributions import Distribution

from experiments.harness.placement import on_cpu
from experiments.tasks.wheel import Wheel
from kvq_jax.models.neural_processes import NeuralProcess, has_cache, has_state
from kvq_jax.models.points import Points

Array = jax.Array

# Seeds that play at once from caches and buffers. On one core, five wheels a seed, 1,000 rounds of three seeds take
# TNP-D 74 s together and 56 s one by one, EQTNP 55 and 44 s; 300 rounds of five seeds take CANP 7.1 and 3.5 s.
_ON_CPU, _ELSEWHERE = 1, 5


class Agent(NamedTuple):
    """A player, as functions of its memory; `rounds` is the number of rounds played so far."""

    init: Callable[[tuple], Any]  # leading dimensions -> empty memory
    grow: Callable[[Any, int], Any]  # (memory, rounds it must hold) -> memory
    add: Callable[[Any, Array, Array, Array], Any]  # (memory, x [..., 2], r [..., 5], rounds) -> memory
    predict: Callable[[Any, Array, Array, Array], Distribution]  # (memory, x [..., 2], rounds, key) -> of r, one target
    stages: int  # how often it grows


def in_state(model: NeuralProcess, variables: Any) -> Agent:
    """The model's own state: every round costs the same."""
    apply = functools.partial(model.apply, variables)
    return Agent(
        init=lambda batch: apply(batch, method="init_state"),
        grow=lambda state, size: state,
        add=lambda state, x, row, rounds: apply(state, Points(x[..., None, :], row[..., None, :]), method="update"),
        predict=lambda state, x, rounds, key: apply(
            apply(state, method="finish"), x[..., None, :], key=key, method="query"
        ),
        stages=1,
    )


def in_buffer(model: NeuralProcess, variables: Any, stages: int) -> Agent:
    """All rounds, those not yet played masked. A round costs as much as a prediction from the whole buffer.

    The buffer grows in `stages` equal steps, each compiled on its own. If a round's cost is linear in the size of the
    buffer, S stages cost (S + 1) / 2S of one.
    """

    def init(batch):
        return Points(jnp.zeros((*batch, 0, 2)), jnp.zeros((*batch, 0, model.dim_y)))

    def grow(buffer, size):
        pad = [(0, 0)] * (buffer.x.ndim - 2) + [(0, size - buffer.x.shape[-2]), (0, 0)]
        return Points(jnp.pad(buffer.x, pad), jnp.pad(buffer.y, pad))

    def add(buffer, x, row, rounds):
        return Points(_put(buffer.x, x, rounds), _put(buffer.y, row, rounds))

    def predict(buffer, x, rounds, key):
        played = jnp.broadcast_to(jnp.arange(buffer.x.shape[-2]) < rounds, buffer.x.shape[:-1])
        return model.apply(variables, buffer._replace(mask=played), x[..., None, :], key=key)

    return Agent(init, grow, add, predict, stages)


def in_cache(model: NeuralProcess, variables: Any, stages: int) -> Agent:
    """The model's own cache, which grows in `stages` equal steps, as a buffer does: a round is linear in its size."""
    apply = functools.partial(model.apply, variables)
    return Agent(
        init=lambda batch: apply(batch, 0, method="init_cache"),
        grow=lambda cache, size: apply(cache, size, method="widen"),
        add=lambda cache, x, row, rounds: apply(
            cache, Points(x[..., None, :], row[..., None, :]), rounds, method="extend"
        ),
        predict=lambda cache, x, rounds, key: apply(
            apply(cache, method="finish_cache"), x[..., None, :], key=key, method="query"
        ),
        stages=stages,
    )


def agent(model: NeuralProcess, variables: Any, stages: int) -> Agent:
    """The player of a model: with its state where it has one, else with its cache or a buffer of `stages` stages."""
    if has_state(model):
        return in_state(model, variables)
    return (in_cache if has_cache(model) else in_buffer)(model, variables, stages)


def at_once(model: NeuralProcess) -> float:
    """Seeds that may play at once: more would be slower."""
    if has_state(model):
        return math.inf
    return _ON_CPU if on_cpu() else _ELSEWHERE


def play(agent: Agent, wheel: Wheel, key: Array, exploration: float) -> Array:
    """The arms [..., T] that UCB pulls: the first at random, later ones by the largest mean + exploration * deviation.

    The wheels [...] of T rounds play at once. `key` is of the first arm, the noise in the history and the model's
    samples; wheels share none of them.
    """
    batch, rounds = wheel.x.shape[:-2], wheel.x.shape[-2]
    first_key, loop_key = jax.random.split(key)
    first = jax.random.randint(first_key, batch, 0, wheel.reward.shape[-1])

    def one_round(state, inputs):
        index, x, reward, round_key = inputs
        predict_key, noise_key = jax.random.split(round_key)
        prediction = agent.predict(state, x, index, predict_key)
        bound = prediction.mean + exploration * jnp.sqrt(prediction.variance)
        arm = jnp.where(index == 0, first, jnp.argmax(bound.reshape(reward.shape), -1))
        pulled = jax.nn.one_hot(arm, reward.shape[-1], dtype=bool)
        row = jnp.where(pulled, reward, jax.random.normal(noise_key, reward.shape))
        return agent.add(state, x, row, index), arm

    x, reward = (jnp.moveaxis(leaf, -2, 0) for leaf in (wheel.x, wheel.reward))
    inputs = jnp.arange(rounds), x, reward, jax.random.split(loop_key, rounds)
    state, arms = agent.init(batch), []
    ends = [rounds * stage // agent.stages for stage in range(agent.stages + 1)]
    for begin, end in zip(ends, ends[1:]):
        part = jax.tree.map(operator.itemgetter(slice(begin, end)), inputs)
        state, pulled = lax.scan(one_round, agent.grow(state, end), part)
        arms.append(pulled)
    return jnp.moveaxis(jnp.concatenate(arms), 0, -1)


def regret(wheel: Wheel, arms: Array) -> Array:
    """The cost of each round [..., T] beside the best arm on average, in realised rewards: at times negative."""
    paid = lambda arms: jnp.take_along_axis(wheel.reward, arms[..., None], -1)[..., 0]
    return paid(wheel.best) - paid(arms)


def _put(rows: Array, row: Array, index: Array) -> Array:
    """rows [..., n, k] with the index-th replaced by row [..., k]."""
    return lax.dynamic_update_slice_in_dim(rows, row[..., None, :], index, -2)
