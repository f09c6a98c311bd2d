"""The wheel bandit: five arms, a disc cut at radius delta (Riquelme et al. 2018, arXiv 1802.09127).

A context is a point of the unit disc. Within radius delta arm 0 pays best, about 1.2 against 1; beyond it the arm of
the point's quadrant pays about 50. Here are the wheels of the published code, point for point, fresh wheels drawn
inside jit, and the two readings of how models are trained on them (CMANP paper, Appendix C.2).
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.base import Task
from kvq_jax.domains import Count, Fraction, NotNegative, NotNegativeRange
from kvq_jax.models.points import Points

ARMS = 5
MEANS = (1.2, 1.0, 1.0, 1.0, 1.0)  # of the arms where they do not pay well
LARGE_MEAN = 50.0


class Wheel(NamedTuple):
    """Rounds of the bandit. The rewards are realised: what each arm would pay in this round."""

    x: jax.Array  # [..., n, 2]
    reward: jax.Array  # [..., n, 5]
    best: jax.Array  # [..., n] int: the arm that pays best on average, not always in its round


@dataclasses.dataclass(frozen=True)
class Rewards:
    """How far rewards spread around their means."""

    small_std: NotNegative
    large_std: NotNegative

    def wheel(self, x, delta, small_noise, large_noise) -> Wheel:
        """The rounds at x [..., n, 2] from standard normal noise [..., n, 5] and [..., n]; all NumPy or all JAX."""
        xp = x.__array_namespace__()
        quadrant, outside = quadrant_arm(x), is_outside(x, delta)
        small = xp.asarray(MEANS, dtype=x.dtype) + self.small_std * small_noise
        large = LARGE_MEAN + self.large_std * large_noise
        pays = outside[..., None] & (xp.arange(ARMS) == quadrant[..., None])
        return Wheel(x, xp.where(pays, large[..., None], small), xp.where(outside, quadrant, 0))


def quadrant_arm(x):
    """The arm of the quadrant of x [..., 2]: 1 to 4 counterclockwise from (+, +)."""
    xp = x.__array_namespace__()
    right, up = x[..., 0] > 0, x[..., 1] > 0
    return xp.where(up, xp.where(right, 1, 2), xp.where(right, 4, 3))


def is_outside(x, delta):
    """Whether x [..., 2] has radius delta or more."""
    return x.__array_namespace__().linalg.norm(x, axis=-1) >= delta


def published_wheel(points: int, delta: float, order: int, rewards: Rewards, start: int = 0) -> Wheel:
    """The wheel of the published code, in float32, from NumPy's legacy generator.

    It draws blocks of points // 3 locations in the square and keeps those in the disc, then for one round after the
    other the five small rewards and, where one arm pays well, the large one.

    Args:
      points: number of rounds. A smaller wheel has the first locations of a larger one.
      delta: radius.
      order: seed of the order of the rounds, which the published code calls the seed of the wheel.
      rewards: how far they spread.
      start: seed of the generator; the published code always starts it at 0, so that its wheels are one wheel.
    """
    random = np.random.RandomState(start)
    x = np.empty((0, 2))
    while len(x) < points:
        block = random.uniform(-1, 1, (max(points // 3, 1), 2))
        x = np.concatenate([x, block[np.linalg.norm(block, axis=-1) <= 1]])
    x = x[:points]
    draws = ARMS + is_outside(x, delta)
    noise = np.append(random.standard_normal(draws.sum()), 0.0)  # the last round may have no large reward to read
    first = (np.cumsum(draws) - draws)[:, None] + np.arange(ARMS + 1)
    wheel = rewards.wheel(x, delta, noise[first[:, :ARMS]], noise[first[:, ARMS]])
    ordered = np.random.RandomState(order).permutation(points)
    return Wheel(*(leaf[ordered].astype(kind) for leaf, kind in zip(wheel, (np.float32, np.float32, np.int32))))


def stack(wheels: Sequence[Wheel]) -> Wheel:
    """Wheels of NumPy on a new leading axis."""
    return Wheel(*map(np.stack, zip(*wheels)))


def sample_wheel(key: jax.Array, points: int, delta: float | jax.Array, rewards: Rewards) -> Wheel:
    """`points` fresh rounds, uniform in the disc."""
    radius_key, angle_key, small_key, large_key = jax.random.split(key, 4)
    radius = jnp.sqrt(jax.random.uniform(radius_key, (points,)))
    angle = jax.random.uniform(angle_key, (points,), maxval=2 * jnp.pi)
    x = radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
    small, large = jax.random.normal(small_key, (points, ARMS)), jax.random.normal(large_key, (points,))
    return rewards.wheel(x, delta, small, large)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Wheels:
    """What both readings have: the first rounds of a wheel are context, the last ones targets."""

    context: Count
    targets: Count
    drop: Fraction  # probability that a reward of the context is noise instead, N(0, 1), drawn anew in every step
    small_std: NotNegative  # of Rewards
    large_std: NotNegative

    def _rewards(self) -> Rewards:
        return Rewards(self.small_std, self.large_std)

    def _task(self, key: jax.Array, wheel: Wheel) -> Task:
        parts = slice(self.context), slice(self.context, None)
        context, target = (Points(wheel.x[..., part, :], wheel.reward[..., part, :]) for part in parts)
        if self.drop:
            context = context._replace(y=drop_rewards(key, context.y, self.drop))
        return Task(context, target)


@dataclasses.dataclass(frozen=True)
class FixedWheels(_Wheels):
    """The published code's training: the same wheels, with the same context and targets, in every step.

    A task is all wheels together, [wheels, n, ...]: one task is a batch of the published code.
    """

    deltas: tuple[Fraction, ...]

    def data(self) -> dict[str, Wheel]:
        """The published wheels to train on; to validate and to test, unseen rounds of the same radii."""
        points, rewards, orders = self.context + self.targets, self._rewards(), list(enumerate(self.deltas))

        def wheels(start):
            return stack([published_wheel(points, delta, order, rewards, start) for order, delta in orders])

        return {split: wheels(start) for start, split in enumerate(("train", "validation", "test"))}

    def sample(self, key: jax.Array, data: Wheel) -> Task:
        """The wheels of a split: context [wheels, context, ...] and targets [wheels, targets, ...]."""
        return self._task(key, data)


@dataclasses.dataclass(frozen=True)
class FreshWheels(_Wheels):
    """The paper's text: a new wheel for every task, its radius uniform in `delta`."""

    delta: NotNegativeRange

    def data(self) -> dict[str, None]:
        """Every wheel is drawn from a key."""
        return dict.fromkeys(("train", "validation", "test"))

    def sample(self, key: jax.Array, data: None) -> Task:
        """One wheel. `data` is not used."""
        delta_key, wheel_key, task_key = jax.random.split(key, 3)
        delta = jax.random.uniform(delta_key, (), minval=self.delta[0], maxval=self.delta[1])
        return self._task(task_key, sample_wheel(wheel_key, self.context + self.targets, delta, self._rewards()))

    def loss_without_context(self, std_floor: float = 0.0, points: int = 10_000) -> float:
        """The least expected -log p of a target's rewards by normal distributions that see its location alone.

        They have the mean and variance of each reward at radius r, where the arm of the quadrant pays well if delta is
        not above r, and no standard deviation below `std_floor`. Midpoints of `points` rings are summed.
        """
        r, (low, high) = (np.arange(points) + 0.5) / points, self.delta
        pays = np.clip((r - low) / (high - low), 0, 1) if high > low else (r >= low).astype(float)
        small, large = self.small_std**2, self.large_std**2
        spread = pays * (1 - pays) * (LARGE_MEAN - MEANS[1]) ** 2  # MEANS of arms 1 to 4 are equal
        loss = (ARMS - 1) * _normal_loss(small, std_floor) + _normal_loss(
            pays * large + (1 - pays) * small + spread, std_floor
        )
        return float(np.mean(2 * r * loss))


def _normal_loss(variance, std_floor: float):
    """The expected -log p of a variable by a normal distribution of its mean and variance, or of the floor's."""
    own = np.maximum(variance, std_floor**2)
    return 0.5 * (np.log(2 * np.pi * own) + variance / own)


WHEELS = {"fixed_wheels": FixedWheels, "fresh_wheels": FreshWheels}


def drop_rewards(key: jax.Array, reward: jax.Array, probability: float) -> jax.Array:
    """Rewards, each replaced by N(0, 1) with the given probability: to a model, an arm that was not pulled."""
    drop_key, noise_key = jax.random.split(key)
    dropped = jax.random.bernoulli(drop_key, probability, reward.shape)
    return jnp.where(dropped, jax.random.normal(noise_key, reward.shape), reward)
