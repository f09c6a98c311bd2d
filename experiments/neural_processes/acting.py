"""Bandit rounds played by a neural process: UCB on what it predicts from the rounds before (CMANP paper, Appendix C.2).

After a round the model is told (x, r): r is noise, N(0, 1), but for the arm that was pulled, whose entry is its reward. All
wheels play at once, in one compiled loop. A model with a state of constant size takes each round into its state; any other
sees the whole history, in a buffer with a mask.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.distributions import Distribution

from experiments.neural_processes.wheel import Wheel
from kvq_jax.models.neural_processes import NeuralProcess, Points
from kvq_jax.models.neural_processes.conditioning import has_state

Array = jax.Array


class Memory(NamedTuple):
    """What an agent remembers, as functions; `rounds` is how many rounds have been played."""

    init: Callable[[tuple], Any]  # leading dimensions -> memory of no round
    grow: Callable[[Any, int], Any]  # (memory, rounds it must hold) -> memory
    add: Callable[[Any, Array, Array, Array], Any]  # (memory, x [..., 2], r [..., 5], rounds) -> memory
    predict: Callable[[Any, Array, Array, Array], Distribution]  # (memory, x [..., 2], rounds, key) -> of r, one target
    stages: int  # how often it grows


def in_state(model: NeuralProcess, variables: Any) -> Memory:
    """The model's own state: every round costs the same."""

    def init(batch):
        return model.apply(variables, batch, method="init_state")

    def grow(state, size):
        return state

    def add(state, x, row, rounds):
        return model.apply(variables, state, Points(x[..., None, :], row[..., None, :]), method="update")

    def predict(state, x, rounds, key):
        return model.apply(variables, state, x[..., None, :], key=key, method="query")

    return Memory(init, grow, add, predict, stages=1)


def in_buffer(model: NeuralProcess, variables: Any, stages: int) -> Memory:
    """All rounds, of which those not yet played are masked. A round costs what the model makes of the whole buffer.

    The buffer grows in `stages` equal steps. Where a round's cost is linear in its size, S stages cost (S + 1) / 2S of one, and
    each is compiled on its own.
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

    return Memory(init, grow, add, predict, stages)


def agent(model: NeuralProcess, variables: Any, stages: int) -> Memory:
    """How a model plays: in its state where it has one, else in a buffer of so many stages."""
    return in_state(model, variables) if has_state(model, variables) else in_buffer(model, variables, stages)


def play(memory: Memory, wheel: Wheel, key: Array, exploration: float) -> Array:
    """The arms [..., T] that UCB pulls: the first at random, then that of the largest mean + exploration * standard deviation.

    Args:
      memory: of the agent.
      wheel: T rounds of any number of wheels [...], which play at once.
      key: of the first arm, the noise in the history, and the model's samples; none of them shared between wheels.
      exploration: weight of the standard deviation.
    """
    batch, rounds = wheel.x.shape[:-2], wheel.x.shape[-2]
    first_key, loop_key = jax.random.split(key)
    first = jax.random.randint(first_key, batch, 0, wheel.reward.shape[-1])

    def one_round(state, inputs):
        index, x, reward, round_key = inputs
        predict_key, noise_key = jax.random.split(round_key)
        prediction = memory.predict(state, x, index, predict_key)
        bound = prediction.mean + exploration * jnp.sqrt(prediction.variance)
        arm = jnp.where(index == 0, first, jnp.argmax(bound.reshape(reward.shape), -1))
        pulled = jax.nn.one_hot(arm, reward.shape[-1], dtype=bool)
        row = jnp.where(pulled, reward, jax.random.normal(noise_key, reward.shape))
        return memory.add(state, x, row, index), arm

    x, reward = (jnp.moveaxis(leaf, -2, 0) for leaf in (wheel.x, wheel.reward))
    inputs = jnp.arange(rounds), x, reward, jax.random.split(loop_key, rounds)
    state, arms = memory.init(batch), []
    ends = [rounds * stage // memory.stages for stage in range(memory.stages + 1)]
    for begin, end in zip(ends, ends[1:]):
        part = jax.tree.map(lambda leaf: leaf[begin:end], inputs)
        state, pulled = lax.scan(one_round, memory.grow(state, end), part)
        arms.append(pulled)
    return jnp.moveaxis(jnp.concatenate(arms), 0, -1)


def regret(wheel: Wheel, arms: Array) -> Array:
    """What each round [..., T] cost beside the arm that pays best on average: of realised rewards, so at times negative."""
    return _paid(wheel, wheel.best) - _paid(wheel, arms)


def _paid(wheel: Wheel, arms: Array) -> Array:
    return jnp.take_along_axis(wheel.reward, arms[..., None], -1)[..., 0]


def _put(rows: Array, row: Array, index: Array) -> Array:
    """rows [..., n, k] with row [..., k] in place of the index-th."""
    return lax.dynamic_update_slice_in_dim(rows, row[..., None, :], index, -2)
