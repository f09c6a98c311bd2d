"""Playing the wheel: the rule of UCB, regrets of players that can be told in advance, and both memories of an agent."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from ml_collections import ConfigDict

from configs.neural_processes.wheel import RADII
from experiments.harness.errors import ConfigError
from experiments.neural_processes.paper_numbers import TABLE7
from experiments.neural_processes.wheel import acting
from experiments.neural_processes.wheel import experiment as bandit
from experiments.tasks.wheel import ARMS, Rewards, Wheel, published_wheel, stack
from kvq_jax.models import MODELS, Model, NeuralProcess, Points, whole_mask
from kvq_jax.models.neural_processes import CANP, predictive
from tests.kvq_jax.nn.drawing import drawn, start

DELTAS = (0.7, 0.9)
PUBLISHED = dict(
    wheels="published",
    deltas=tuple(TABLE7["cnp"]),
    rounds=2000,
    seeds=50,
    batch_size=50,
    last=500,
    exploration=1.0,
    stages=1,
    example_seeds=1,
)


class KnowsTheWheel(NeuralProcess):
    """Predicts the mean reward of every arm."""

    delta: float = 0.7
    calls = []

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        self.calls.append(context.x.shape)
        scale = self.param("scale", nn.initializers.ones, ())
        noise = jnp.zeros((*target_x.shape[:-1], ARMS))
        known = Rewards(0.0, 0.0).wheel(target_x, self.delta, noise, noise[..., 0])
        return predictive.factorised(known.reward, 1e-3 * scale + noise)


class MeanReward(NeuralProcess):
    """Each arm's mean reward so far beside a linear function of x; its spread shrinks with the number of rounds."""

    def __call__(self, context, target_x, target_mask=None, *, key=None):
        return self.query(self.update(self.init_state(context.x.shape[:-2]), context), target_x)

    def init_state(self, batch=()):
        return jnp.zeros((*batch, ARMS)), jnp.zeros(batch)

    def update(self, state, context):
        kept = whole_mask(context)
        return state[0] + jnp.sum(kept[..., None] * context.y, -2), state[1] + jnp.sum(kept, -1)

    @nn.compact
    def query(self, state, target_x, target_mask=None, *, key=None):
        count = state[1][..., None, None]
        mean = state[0][..., None, :] / (count + 1) + nn.Dense(ARMS, kernel_init=nn.initializers.normal(5.0))(target_x)
        return predictive.factorised(mean, jnp.broadcast_to(3 / jnp.sqrt(count + 1), mean.shape))


class TwiceTheLoss(MeanReward):
    """Its own loss is not its likelihood."""

    def loss(self, context, target, *, key=None):
        return -2 * self.log_likelihood(context, target, key=key)


def experiment(monkeypatch, model="mean_reward", task=None, loss="own", **evaluation):
    for name, cls in (("mean_reward", MeanReward), ("twice", TwiceTheLoss), ("knows", KnowsTheWheel)):
        monkeypatch.setitem(MODELS, name, Model(cls, cls.__name__, "neural_process"))
    task = task or dict(name="fixed_wheels", deltas=RADII, context=30, targets=5, drop=0.5)
    task = task | dict(small_std=0.05, large_std=0.01)
    section = {"name": model, "dim_y": ARMS} | ({"delta": 0.7} if model == "knows" else {})
    config = dict(task=task, model=section, loss=loss, evaluation=dict(seed=7))
    return bandit.build(ConfigDict(config), PUBLISHED | evaluation, None)


def evaluated(made):
    return jax.jit(made.evaluate)(drawn(made.init, jax.random.key(0)), made.data["test"], jax.random.key(1))


def test_policies_that_learn_nothing_and_the_paper_row_of_uniform(monkeypatch):
    made = experiment(monkeypatch)
    test = jax.tree.map(jnp.asarray, made.data["test"])
    values = bandit.measures(test, test.wheel.best, bandit.Evaluation(**PUBLISHED))
    for delta, (mean, std) in TABLE7["uniform"].items():
        uniform = np.asarray(values[f"uniform/cumulative@{delta}"])
        np.testing.assert_allclose([uniform.mean(), round(float(uniform.std()), 2)], [mean, std], rtol=1e-5)
        assert np.ptp(values[f"first_arm/cumulative@{delta}"]) < 1e-3  # an order does not change a sum
        np.testing.assert_array_equal(values[f"oracle/cumulative@{delta}"], 0)
        np.testing.assert_array_equal(values[f"cumulative@{delta}"], 0)
        np.testing.assert_allclose(values[f"uniform/simple@{delta}"].mean(), 100, rtol=1e-5)
    # Where delta is large the quadrant's arm loses 1.2 - 1 in almost every round.
    expected = 100 * np.sum(0.2 * np.asarray(test.wheel.best[0, 4] == 0)) / 1161
    np.testing.assert_allclose(values["quadrant/cumulative@0.995"].mean(), expected, rtol=0.02)


def test_who_knows_the_wheel_has_no_regret_after_the_first_round(monkeypatch):
    made = experiment(monkeypatch, "knows", deltas=(0.7,), rounds=300, seeds=4, batch_size=4, last=299)
    values = evaluated(made)
    np.testing.assert_array_equal(values["simple@0.7"], 0)
    assert np.all(values["cumulative@0.7"] <= 100 * 50 / (300 * 20))  # the first arm is drawn


def test_one_program_plays_all_seeds_and_radii(monkeypatch):
    monkeypatch.setattr(KnowsTheWheel, "calls", calls := [])
    made = experiment(monkeypatch, "knows", deltas=DELTAS, rounds=200, seeds=6, batch_size=6, last=10, stages=2)
    variables = drawn(made.init, jax.random.key(0))
    calls.clear()
    jax.jit(made.evaluate).lower(variables, made.data["test"], jax.random.key(1))
    assert (
        set(calls) == {(2, 100, 2), (2, 200, 2)} and len(calls) <= 4
    )  # radii, buffer, dx; each stage is traced at most twice


def test_how_many_seeds_play_at_once_changes_nothing(monkeypatch):
    played = []
    for at_once in (2, 5):
        monkeypatch.setattr(acting, "_ON_CPU", at_once)
        monkeypatch.setattr(KnowsTheWheel, "calls", calls := [])
        made = experiment(monkeypatch, "knows", deltas=DELTAS, rounds=20, seeds=5, batch_size=5, last=20)
        played.append(evaluated(made))
        assert calls  # with a buffer
    jax.tree.map(np.testing.assert_array_equal, *played)


def test_seeds_play_in_equal_parts_as_they_play_together(monkeypatch):
    monkeypatch.setattr(acting, "_ON_CPU", 5)
    made = experiment(monkeypatch, "knows", deltas=DELTAS, rounds=20, seeds=8, batch_size=8, last=20)
    assert made.parts == 2  # two of four: five seeds may play at once from buffers
    test = jax.tree.map(np.asarray, made.data["test"])
    halves = jax.tree.map(lambda leaf: leaf[:4], test), jax.tree.map(lambda leaf: leaf[4:], test)
    whole, *parts = (evaluated(dataclasses.replace(made, data={"test": part})) for part in (test, *halves))
    jax.tree.map(lambda value, *own: np.testing.assert_array_equal(value, np.concatenate(own)), whole, *parts)
    assert experiment(monkeypatch, rounds=20, seeds=8, batch_size=8, last=20).parts == 1  # states: all at once


def wheels(seeds=3, rounds=40) -> Wheel:
    made = stack([stack([published_wheel(200, d, seed, Rewards(0.05, 0.01)) for d in DELTAS]) for seed in range(seeds)])
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[:, :, :rounds]), made)


def test_ucb_adds_so_many_deviations_to_the_mean():
    wheel = jax.tree.map(lambda leaf: leaf[0, 0], wheels(1, 5))
    law = predictive.factorised(jnp.array([[1.0, 0, -9, -9, -9]]), jnp.array([[0.1, 1.5, 0.1, 0.1, 0.1]]))
    kept = lambda memory, *told: memory
    agent = acting.Agent(lambda batch: (), kept, kept, lambda *told: law, stages=1)
    for exploration, arm in ((0.5, 0), (1.0, 1)):  # 1.05 against 0.75, 1.1 against 1.5
        np.testing.assert_array_equal(acting.play(agent, wheel, jax.random.key(0), exploration)[1:], arm)


@pytest.mark.parametrize("stages", [1, 3])
def test_a_state_and_a_buffer_pull_the_same_arms(stages):
    model, rounds = MeanReward(ARMS), wheels()
    variables = model.init(jax.random.key(3), Points(rounds.x, rounds.reward), rounds.x)
    key = jax.random.key(4)
    agents = acting.in_state(model, variables), acting.in_buffer(model, variables, stages)
    of_state, of_buffer = (acting.play(agent, rounds, key, 1.0) for agent in agents)
    np.testing.assert_array_equal(of_state, of_buffer)
    assert len(np.unique(of_state)) == ARMS
    assert acting.agent(model, variables, 7).stages == 1  # it has a state


@pytest.mark.parametrize("stages", [1, 3])
def test_a_cache_and_a_buffer_pull_the_same_arms(stages):
    model, rounds = CANP(ARMS, hidden=8, num_heads=2), wheels()
    variables = start(model, Points(rounds.x, rounds.reward), rounds.x)
    agents = acting.in_cache(model, variables, stages), acting.in_buffer(model, variables, stages)
    of_cache, of_buffer = (acting.play(agent, rounds, jax.random.key(4), 1.0) for agent in agents)
    np.testing.assert_array_equal(of_cache, of_buffer)
    assert len(np.unique(of_cache)) > 2
    assert acting.agent(model, variables, 7).stages == 7 and acting.at_once(model) == 1


def test_the_history_shows_the_reward_of_the_arm_pulled_and_noise_for_the_others():
    rounds = wheels()
    seen = []

    def predict(state, x, index, key):
        return predictive.factorised(
            jnp.zeros((*x.shape[:-1], 1, ARMS)), jnp.ones((*x.shape[:-1], 1, ARMS)) * jnp.arange(1, 6)
        )

    def add(state, x, row, index):
        return state.at[..., index, :].set(row)

    def grow(state, size):  # sees what the first of two stages has left
        seen.append(state)
        return state

    agent = acting.Agent(lambda batch: jnp.zeros((*batch, 40, ARMS)), grow, add, predict, stages=2)
    arms = acting.play(agent, rounds, jax.random.key(0), 1.0)
    np.testing.assert_array_equal(arms[..., 1:], ARMS - 1)  # the largest spread, equal means
    assert len(np.unique(arms[..., 0])) > 1  # drawn for each wheel
    rows, pulled = np.asarray(seen[1][..., :20, :]), np.asarray(jax.nn.one_hot(arms, ARMS, dtype=bool))[..., :20, :]
    np.testing.assert_array_equal(rows[pulled], np.asarray(rounds.reward)[..., :20, :][pulled])
    noise = rows[~pulled]
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 1], atol=0.15)
    assert len(np.unique(noise)) == noise.size


@pytest.mark.parametrize(
    "task",
    [
        dict(name="fixed_wheels", deltas=RADII, context=30, targets=5, drop=0.5),
        dict(name="fresh_wheels", delta=(0.0, 1.0), context=30, targets=5, drop=0.0),
    ],
)
def test_losses_are_finite_and_have_gradients(monkeypatch, task):
    made = experiment(monkeypatch, task=task, wheels="fresh", rounds=30, seeds=2, batch_size=2, last=5)
    variables = drawn(made.init, jax.random.key(0))

    @jax.jit
    def step(variables, data):
        batch = jax.vmap(made.sample, (0, None))(jax.random.split(jax.random.key(1), 2), data)
        return jax.value_and_grad(lambda variables: made.loss(variables, batch, jax.random.key(2))[0])(variables)

    for split in ("train", "validation"):
        value, gradient = step(variables, made.data[split])
        assert np.isfinite(value) and any(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))
    values = evaluated(made)
    assert {len(of_seed) for of_seed in values.values()} == {2} and all(np.all(np.isfinite(v)) for v in values.values())
    arrays = jax.eval_shape(made.examples, variables, made.data["test"], jax.random.key(0))
    assert arrays["prediction"].shape == (1, 5, 30) and arrays["reward"].shape == (1, 5, 30, ARMS)


@pytest.mark.parametrize("loss, factor", [("own", -2), ("likelihood", -1)])
def test_the_loss_is_that_of_the_model_or_minus_its_likelihood(monkeypatch, loss, factor):
    made = experiment(monkeypatch, "twice", loss=loss, rounds=20, seeds=1, batch_size=1, last=5)
    variables, batch = drawn(made.init, jax.random.key(0)), made.sample(jax.random.key(1), made.data["train"])
    likelihood = TwiceTheLoss(ARMS).apply(variables, batch.context, batch.target, method="log_likelihood")
    np.testing.assert_allclose(made.loss(variables, batch, None)[0], factor * likelihood.mean(), rtol=1e-5)


def test_fresh_rounds_differ_between_seeds_and_radii(monkeypatch):
    test = experiment(monkeypatch, wheels="fresh", rounds=30, seeds=2, last=5).data["test"]
    assert len(np.unique(test.wheel.x)) == test.wheel.x.size
    assert np.any(test.uniform[0] != test.uniform[1])


@pytest.mark.parametrize(
    "change, message",
    [({"last": 0}, "last: expected int"), ({"rounds": 2001}, "2000"), ({"wheels": "new"}, "published")],
)
def test_impossible_evaluations_are_refused(monkeypatch, change, message):
    with pytest.raises(ConfigError, match=message):
        experiment(monkeypatch, **change)
