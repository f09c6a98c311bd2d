"""The wheels: those of the published code to every digit that Table 7 prints of them, and the law of the fresh ones."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.neural_processes.wheel import RADII
from experiments.neural_processes import paper_numbers
from experiments.tasks.wheel import (
    ARMS,
    FixedWheels,
    FreshWheels,
    Rewards,
    drop_rewards,
    is_outside,
    published_wheel,
    quadrant_arm,
    sample_wheel,
)

SPREAD = dict(small_std=0.05, large_std=0.01)
CODE = Rewards(**SPREAD)
# delta -> mean cumulative regret of Uniform, rounds in which one arm pays well, and the regrets of always arm 0 and of
# the quadrant's arm in percent of what Uniform is expected to lose.
FACTS = {
    0.7: (40767, 1039, 124.2, 0.47),
    0.9: (14469, 367, 122.4, 2.22),
    0.95: (7603, 188, 119.9, 4.74),
    0.99: (1621, 34, 100.9, 23.6),
    0.995: (1161, 22, 91.0, 33.8),
}


def gaps(delta: float, order: int) -> np.ndarray:
    """Realised regret of every arm in every round, [2000, 5]."""
    wheel = published_wheel(2000, delta, order, CODE)
    return np.take_along_axis(wheel.reward, wheel.best[:, None], 1).astype(np.float64) - wheel.reward


@pytest.mark.parametrize("delta", FACTS)
def test_the_published_wheels_give_the_uniform_row_of_table_7_to_all_digits(delta):
    mean, large, first_arm, quadrant = FACTS[delta]
    arms = np.random.RandomState(0).randint(ARMS, size=2000)
    totals = np.array([gaps(delta, order)[np.arange(2000), arms].sum() for order in range(50)])
    assert f"{100 * totals.std() / totals.mean():.2f}" == f"{paper_numbers.TABLE7['uniform'][delta][1]:.2f}"
    assert round(totals.mean()) == mean
    wheel, lost = published_wheel(2000, delta, 0, CODE), gaps(delta, 0)
    expected = lost.mean(1).sum()
    assert np.sum(wheel.best > 0) == large == np.sum(wheel.reward > 10)
    by_quadrant = np.take_along_axis(lost, quadrant_arm(wheel.x)[:, None], 1).sum()
    np.testing.assert_allclose(100 * lost[:, 0].sum() / expected, first_arm, atol=0.06)
    np.testing.assert_allclose(100 * by_quadrant / expected, quadrant, rtol=0.007)


def test_the_seed_of_a_published_wheel_is_an_order():
    first, second = (published_wheel(2000, 0.9, seed, CODE) for seed in (3, 4))
    assert not np.array_equal(first.x, second.x)
    for one, other in zip(first, second):
        np.testing.assert_array_equal(np.sort(one, 0), np.sort(other, 0))


def test_all_training_wheels_have_the_locations_of_the_evaluation():
    task = FixedWheels(RADII, context=512, targets=50, drop=0.0, **SPREAD)
    train = task.data()["train"]
    played = set(map(tuple, published_wheel(2000, 0.7, 0, CODE).x.tolist()))
    for x, best, delta in zip(train.x, train.best, RADII):
        assert len(x) == 562 and set(map(tuple, x.tolist())) <= played
        np.testing.assert_array_equal(best > 0, is_outside(x, delta))


def test_fresh_rounds_are_uniform_in_the_disc_and_pay_what_the_paper_says():
    n, delta = 20_000, 0.6
    wheel = jax.device_get(jax.jit(lambda key: sample_wheel(key, n, delta, CODE))(jax.random.key(0)))
    radius, quadrant = np.linalg.norm(wheel.x, axis=-1), np.asarray(quadrant_arm(wheel.x))
    for r in (0.3, 0.6, 0.9):
        np.testing.assert_allclose(np.mean(radius < r), r**2, atol=0.012)
    assert radius.max() <= 1 + 1e-6
    signs = {1: (1, 1), 2: (-1, 1), 3: (-1, -1), 4: (1, -1)}
    for arm, sign in signs.items():
        here = quadrant == arm
        np.testing.assert_allclose(here.mean(), 0.25, atol=0.012)
        assert np.all(np.sign(wheel.x[here]) == sign)
        means = np.array([1.2, 1, 1, 1, 1])
        np.testing.assert_allclose(wheel.reward[here & (radius < delta)].mean(0), means, atol=0.005)
        means[arm] = 50
        np.testing.assert_allclose(wheel.reward[here & (radius >= delta)].mean(0), means, atol=0.005)
        np.testing.assert_allclose(wheel.reward[here & (radius >= delta)].std(0)[arm], 0.01, rtol=0.05)
        np.testing.assert_allclose(wheel.reward[here & (radius < delta)].std(0), 0.05, rtol=0.06)
    np.testing.assert_array_equal(wheel.best, np.where(radius >= delta, quadrant, 0))


def test_dropped_rewards_are_standard_normal_and_change_with_the_key():
    reward = jnp.full((20_000, ARMS), 50.0)
    dropped = np.asarray(drop_rewards(jax.random.key(0), reward, 0.5))
    gone = dropped != 50
    np.testing.assert_allclose(gone.mean(0), 0.5, atol=0.015)
    np.testing.assert_allclose([dropped[gone].mean(), dropped[gone].std()], [0, 1], atol=0.02)
    assert abs(np.corrcoef(gone.T)[0, 1]) < 0.03
    assert not np.array_equal(gone, drop_rewards(jax.random.key(1), reward, 0.5) != 50)


def test_fixed_wheels_change_by_the_dropped_rewards_alone():
    task = FixedWheels((0.3, 0.9), context=30, targets=5, drop=0.5, **SPREAD)
    data = task.data()["train"]
    first, second = (task.sample(jax.random.key(i), data) for i in range(2))
    assert first.context.y.shape == (2, 30, 5)
    np.testing.assert_array_equal(first.context.x, second.context.x)
    np.testing.assert_array_equal(first.target.y, data.reward[:, 30:])
    kept = np.asarray((first.context.y == data.reward[:, :30]) & (second.context.y == data.reward[:, :30]))
    np.testing.assert_allclose(kept.mean(), 0.25, atol=0.1)


def test_the_splits_of_fixed_wheels_share_no_location():
    splits = FixedWheels((0.3, 0.9), context=30, targets=5, drop=0.0, **SPREAD).data()
    places = [set(map(tuple, wheel.x.reshape(-1, 2).tolist())) for wheel in splits.values()]
    assert len(set.union(*places)) == 3 * 35


def test_fresh_wheels_differ_in_radius():
    task = FreshWheels((0.0, 1.0), context=200, targets=50, drop=0.0, **SPREAD)
    tasks = jax.vmap(lambda key: task.sample(key, None))(jax.random.split(jax.random.key(0), 50))
    share = np.mean(np.asarray(tasks.context.y) > 10, (1, 2)) * ARMS  # 1 - delta^2, of mean 2/3
    np.testing.assert_allclose(share.mean(), 2 / 3, atol=0.12)
    assert share.min() < 0.3 and share.max() > 0.95


def test_the_loss_without_context_is_that_of_normal_distributions_by_radius():
    """By hand for radii uniform in (0, 1), and by a sample of rewards in rings for others and a floor."""
    task = dict(context=1, targets=1, drop=0.0, small_std=0.01, large_std=0.01)
    whole = FreshWheels(delta=(0.0, 1.0), **task).loss_without_context()
    # The entropies of four arms, and of the fifth with 49^2 r (1 - r): the mean of 2 r log(r (1 - r)) is -2.
    expected = 2 * math.log(2 * math.pi * math.e * 1e-4) + 0.5 * (math.log(2 * math.pi * math.e * 49**2) - 2)
    assert whole == pytest.approx(expected, abs=2e-3)
    floored = FreshWheels(delta=(0.3, 0.6), **task | dict(small_std=0.2)).loss_without_context(0.5)
    key, n = jax.random.key(0), 200_000
    delta = jax.random.uniform(jax.random.fold_in(key, 1), (n,), minval=0.3, maxval=0.6)
    draw = jax.jit(jax.vmap(lambda key, delta: sample_wheel(key, 1, delta, Rewards(0.2, 0.01))))
    wheels = draw(jax.random.split(key, n), delta)
    x, reward = np.asarray(wheels.x[:, 0]), np.asarray(wheels.reward[:, 0], np.float64)
    arms = (np.asarray(quadrant_arm(wheels.x[:, 0]))[:, None] + np.arange(4)) % 4 + 1  # the quadrant's arm is the last
    reward = np.concatenate([reward[:, :1], np.take_along_axis(reward, arms, 1)], 1)
    ring = (100 * np.linalg.norm(x, axis=-1)).astype(int)
    losses = np.zeros(n)
    for each in np.unique(ring):
        own = reward[ring == each]
        std = np.maximum(own.std(0), 0.5)
        losses[ring == each] = np.sum(((own - own.mean(0)) / std) ** 2 / 2 + np.log(std * math.sqrt(2 * math.pi)), -1)
    assert floored == pytest.approx(losses.mean(), abs=0.03)
