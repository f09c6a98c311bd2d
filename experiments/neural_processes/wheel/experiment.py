"""The bandit of the TNP, LBANP and CMANP papers (CMANP, Appendix C.2, Table 7): trained on wheels, judged by regret.

A neural process learns to predict the rewards of all arms from rounds whose rewards it has seen. It then plays wheels
of other radii (acting.py). Its regret is in percent of the cost of pulling arms uniformly at random.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.harness import settings
from experiments.harness.evaluation import part_of
from experiments.harness.experiment import Experiment
from experiments.neural_processes.wheel import acting
from experiments.regression.experiment import initialiser
from experiments.tasks.wheel import ARMS, WHEELS, Rewards, Wheel, published_wheel, quadrant_arm, stack
from kvq_jax.domains import Count, Fraction, NotNegative
from kvq_jax.models import family

SECTIONS = ("task", "model", "loss")

# The config's `loss` -> (method of the model, sign): the model's own loss, or the likelihood of the targets.
LOSSES = {"own": ("loss", 1), "likelihood": ("log_likelihood", -1)}
PUBLISHED_ROUNDS = 2000  # of an evaluation wheel of the published code, which puts all of them in order


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The config's `evaluation` section, without what all experiments share."""

    wheels: str  # published: one wheel for each delta, in `seeds` orders; fresh: new wheels for every seed
    deltas: tuple[Fraction, ...]
    rounds: Count
    seeds: Count
    batch_size: Count  # seeds that play at once, at most: see acting.at_once
    last: Count  # rounds at the end, whose mean regret is the simple regret
    exploration: NotNegative  # of UCB: mean + exploration * standard deviation
    stages: Count  # of the buffer or cache of a model without a state of constant size: acting.in_buffer
    example_seeds: Count

    def __post_init__(self):
        settings.choose(_ROUNDS, self.wheels, "config.evaluation.wheels")
        if self.last > self.rounds:
            raise ValueError(f"last={self.last} of {self.rounds} rounds")
        if self.wheels == "published" and self.rounds > PUBLISHED_ROUNDS:
            raise ValueError(f"rounds={self.rounds}: a published wheel has {PUBLISHED_ROUNDS}")


class Rounds(NamedTuple):
    """What is played: the same for every model."""

    wheel: Wheel  # [seeds, deltas, rounds]
    uniform: jax.Array  # [seeds, deltas, rounds]: arms drawn uniformly
    number: jax.Array  # [seeds]: of the seed
    unit: dict[str, jax.Array]  # of `costs`, [seeds, deltas]: Uniform's mean over all seeds


def build(config: ConfigDict, evaluation: dict, data_dir: str | None) -> Experiment:
    """The experiment that `config` describes. Raises ConfigError."""
    task = settings.build_named(WHEELS, config.task, "config.task")
    model = settings.build_named(family("neural_process"), config.model, "config.model")
    evaluation = settings.build(Evaluation, evaluation, "config.evaluation")
    rewards = Rewards(task.small_std, task.large_std)
    played = _ROUNDS[evaluation.wheels](evaluation, rewards, config.evaluation.seed)
    data = task.data() | {"test": rounds_of(*played, evaluation)}
    method, sign = settings.choose(LOSSES, config.loss, "config.loss")
    at_once = min(evaluation.batch_size, acting.at_once(model))

    def play(variables, wheel, keys):
        """The arms [seeds, deltas, rounds] that the model pulls."""
        agent = acting.agent(model, variables, evaluation.stages)
        play_seed = lambda seed: acting.play(agent, *seed, evaluation.exploration)
        return jax.lax.map(play_seed, (wheel, keys), batch_size=at_once)

    def loss(variables, batch, key):
        return jnp.mean(sign * model.apply(variables, batch.context, batch.target, key=key, method=method)), ({}, {})

    def evaluate(variables, test, key):
        keys = jax.random.split(key, evaluation.seeds)[test.number]
        return measures(test, play(variables, test.wheel, keys), evaluation)

    def examples(variables, test, key):
        shown = jax.tree.map(lambda leaf: leaf[: evaluation.example_seeds], test.wheel)
        return shown._asdict() | {"prediction": play(variables, shown, jax.random.split(key, len(shown.x)))}

    init, seeds = initialiser(model, task, data["train"]), evaluation.seeds
    parts = next(parts for parts in range(1, seeds + 1) if seeds % parts == 0 and seeds <= parts * at_once)
    parted = dict(parts=parts, part=functools.partial(part_of, parts=parts))
    return Experiment(init, task.sample, loss, evaluate, examples, data, model=model, **parted)


def rounds_of(wheel: Wheel, uniform: np.ndarray, evaluation: Evaluation) -> Rounds:
    """The Rounds of wheels and of the arms that Uniform pulls."""
    costs_of_uniform = costs(wheel, uniform, evaluation)
    unit = {name: np.broadcast_to(np.mean(cost, 0), cost.shape) for name, cost in costs_of_uniform.items()}
    return Rounds(wheel, uniform, np.arange(len(uniform)), unit)


def costs(wheel: Wheel, arms: jax.Array, evaluation: Evaluation) -> dict[str, jax.Array]:
    """Of the arms pulled, [..., rounds], the regret of all rounds and its mean over the last ones, [...]."""
    regret = acting.regret(wheel, arms)
    return {"cumulative": regret.sum(-1), "simple": regret[..., -evaluation.last :].mean(-1)}


def measures(rounds: Rounds, arms: jax.Array, evaluation: Evaluation) -> dict[str, jax.Array]:
    """'cumulative@<delta>' and 'simple@<delta>' [seeds] of the arms played, and '<policy>/...' of the POLICIES.

    They are the `costs` in percent of Uniform's mean over all seeds.
    """
    values = {}
    for policy, pulled in {"": arms, **{f"{name}/": arms_of(rounds) for name, arms_of in POLICIES.items()}}.items():
        for name, cost in costs(rounds.wheel, pulled, evaluation).items():
            percent = 100 * cost / rounds.unit[name]
            values |= {f"{policy}{name}@{delta}": percent[:, i] for i, delta in enumerate(evaluation.deltas)}
    return values


# Policies that learn nothing: rounds -> arms.
POLICIES = {
    "uniform": lambda rounds: rounds.uniform,
    "first_arm": lambda rounds: jnp.zeros_like(rounds.wheel.best),
    "quadrant": lambda rounds: quadrant_arm(rounds.wheel.x),
    "oracle": lambda rounds: rounds.wheel.best,
}


def _published_rounds(evaluation: Evaluation, rewards: Rewards, seed: int) -> tuple[Wheel, np.ndarray]:
    """As published: each delta has one wheel, a seed is an order of it; Uniform pulls the same arms in all orders."""

    def of_order(order):
        return stack([published_wheel(PUBLISHED_ROUNDS, delta, order, rewards) for delta in evaluation.deltas])

    whole = stack([of_order(order) for order in range(evaluation.seeds)])
    wheel = jax.tree.map(lambda leaf: leaf[:, :, : evaluation.rounds], whole)
    uniform = np.random.RandomState(0).randint(ARMS, size=evaluation.rounds)
    return wheel, np.broadcast_to(uniform, wheel.best.shape)


def _fresh_rounds(evaluation: Evaluation, rewards: Rewards, seed: int) -> tuple[Wheel, np.ndarray]:
    """Each seed and delta has its own rounds and its own arms of Uniform."""

    def of_seed(starts):
        pairs = zip(evaluation.deltas, starts, strict=True)
        return stack([published_wheel(evaluation.rounds, delta, 0, rewards, start) for delta, start in pairs])

    starts = (np.arange(evaluation.seeds * len(evaluation.deltas)) + 10_000 * seed) % 2**32  # what RandomState takes
    wheel = stack([of_seed(row) for row in starts.reshape(evaluation.seeds, -1)])
    return wheel, np.random.RandomState(seed).randint(ARMS, size=wheel.best.shape)


_ROUNDS = {"published": _published_rounds, "fresh": _fresh_rounds}
