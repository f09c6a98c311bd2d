"""Policy distillation: its sampler and its answers in closed form."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tasks.policy_distillation import PolicyDistillation, trilateration

TASK = PolicyDistillation(observations=5, target_std=1.0, place_std=0.5, linearised_alpha=1e-4)


def draw(task, number):
    return jax.jit(jax.vmap(lambda key: task.sample(key, None)))(jax.random.split(jax.random.key(0), number))


def test_the_sampler_gives_normal_targets_places_and_their_squared_distances():
    tasks = draw(TASK, 4000)
    places, targets = tasks.context.x[..., :2], tasks.target.y[..., 0]
    assert (
        tasks.context.x.shape == (4000, 5, 3) and tasks.context.y.shape == (4000, 5, 1) and targets.shape == (4000, 2)
    )
    np.testing.assert_allclose(tasks.context.y[..., 0], np.sum((places - targets[:, None]) ** 2, -1), rtol=1e-5)
    np.testing.assert_allclose(np.cov(targets.T), np.eye(2), atol=0.1)
    np.testing.assert_allclose(np.cov(np.reshape(places, (-1, 2)).T), np.eye(2) / 4, atol=0.02)
    assert tasks.context.mask is None and (tasks.context.x[..., 2] == 1).all()
    np.testing.assert_array_equal(tasks.target.x[7], [[1, 0, 0], [0, 1, 0]])


def test_trilateration_by_hand():
    """From (0, 0), (1, 0) and (0, 1) to (3, 4): 9 + 16, 4 + 16 and 9 + 9."""
    places = jnp.array([[0.0, 0], [1, 0], [0, 1]])
    np.testing.assert_allclose(trilateration(places, jnp.array([[25.0], [20], [18]])), [3, 4], atol=1e-5)


def test_trilateration_in_space():
    places, target = jax.random.normal(jax.random.key(0), (6, 3)), jnp.array([0.5, -2.0, 1.0])
    distances = jnp.sum((places - target) ** 2, -1, keepdims=True)
    np.testing.assert_allclose(trilateration(places, distances), target, atol=1e-4)


def test_untrained_intention_is_as_good_as_the_oracle_on_linearised_inputs():
    tasks = draw(TASK, 300)
    errors = {
        name: np.square(answer - tasks.target.y).mean((1, 2)) for name, answer in jax.vmap(TASK.answers)(tasks).items()
    }
    assert np.median(errors["trilateration"]) < 1e-12 and errors["trilateration"].max() < 1e-6
    assert np.median(errors["linearised_intention"]) < 1e-8
    biased = PolicyDistillation(5, 1.0, 0.5, linearised_alpha=1e6)  # an endless ridge predicts zero
    np.testing.assert_allclose(jax.vmap(biased.answers)(tasks)["linearised_intention"], 0, atol=1e-2)
