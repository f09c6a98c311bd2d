"""The experiment of Section 5.1: its evaluation, its claim about untrained Intention, its golden numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.intention import pixels, sine
from experiments.harness.errors import ConfigError
from experiments.harness.launch import split_evaluation
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.step import make_init, make_step
from experiments.intention import few_shot_regression
from kvq_jax.models import FEW_SHOT_REGRESSORS


def experiment(config, **evaluation):
    _, own = split_evaluation(config.evaluation)
    return few_shot_regression.build(config, own | evaluation, None)


@pytest.mark.parametrize("model", sine.MODELS)
def test_evaluation_is_a_plain_loop_over_tasks_and_counts(model):
    """Masked evaluation of many counts, of which some share a program, equals a model called on a shorter context."""
    config = sine.get_config(f"model={model},preset=tiny")
    made = experiment(config, tasks=3, batch_size=2, counts=(1, 3, 4))
    variables, key = made.init(jax.random.key(0)), jax.random.key(5)
    section = config.model.to_dict()
    network = FEW_SHOT_REGRESSORS[section.pop("name")](**section)
    task = few_shot_regression.Sine(**{k: v for k, v in config.task.items() if k != "name"} | {"max_context": 20})
    values = jax.jit(made.evaluate)(variables, None, key)
    for index, task_key in enumerate(jax.random.split(key, 3)):
        sampled = task.sample(task_key, None)
        for count in (1, 3, 4):
            prediction = network.apply(
                variables, sampled.context_x[:count], sampled.context_y[:count], None, sampled.target_x
            )
            error = np.mean((prediction - sampled.target_y) ** 2)
            np.testing.assert_allclose(values[f"mse@{count}"][index], error, rtol=2e-3)


def test_untrained_intention_improves_with_observations():
    """Figures 6 and 7, dashed: at initialisation Intention interpolates (random features, non-zero biases)."""
    made = experiment(sine.get_config("model=intention,preset=quick"), tasks=40, counts=(5, 10, 20, 50))
    values = jax.jit(made.evaluate)(made.init(jax.random.key(0)), None, jax.random.key(1))
    medians = [float(np.median(values[f"mse@{n}"])) for n in (5, 10, 20, 50)]
    assert sorted(medians, reverse=True) == medians and medians[-1] < 0.2 < 4.25


@pytest.mark.parametrize("source", ["digits"])
@pytest.mark.parametrize("model", pixels.MODELS)
def test_examples_of_pixels(model, source):
    made = experiment(pixels.get_config(f"model={model},preset=tiny,source={source}"))
    arrays = jax.jit(made.examples)(made.init(jax.random.key(0)), made.data["test"], jax.random.key(1))
    assert arrays["prediction"].shape == (4, 4, 64, 1) and arrays["target_y"].shape == (4, 64, 1)
    assert set(arrays) == {"context_x", "context_y", "target_x", "target_y", "prediction", "counts"}


def test_validation_images_are_held_out_of_training():
    data = experiment(pixels.get_config("preset=tiny")).data
    assert [len(data[split]) for split in ("train", "validation", "test")] == [1300, 200, 297]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"counts": (5, 1)}, "increasing"),
        ({"counts": ()}, "increasing"),
        ({"counts": (1, 500)}, "config.evaluation.counts"),
    ],
)
def test_impossible_counts_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        experiment(sine.get_config("preset=tiny"), **change)


def test_one_step_of_the_paper_config_keeps_its_numbers():
    """Golden numbers. If a change of the sampler, model or step is meant, take the new ones from the message, in a commit that says why."""
    config = sine.get_config("model=intention,preset=tiny")
    made = experiment(config)
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), 10)
    state = make_init(made, optimizer)(jnp.uint32(0))
    state, metrics = jax.jit(make_step(made, optimizer, 8))(state, None)
    got = float(metrics["loss"]), float(optax_norm(state.params))
    np.testing.assert_allclose(got, GOLDEN, rtol=1e-3)


def optax_norm(tree) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


GOLDEN = (2.003629, 14.061336)  # loss, and norm of the parameters after the step
