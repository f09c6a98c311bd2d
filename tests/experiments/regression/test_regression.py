"""The regression experiment: its evaluation, what it measures of each kind of model and task, golden numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.intention import pixels, sine
from configs.kvq import anything
from experiments.data import sources
from experiments.harness.errors import ConfigError
from experiments.harness.launch import split_evaluation
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.settings import build_named
from experiments.harness.step import make_init, make_step
from experiments.regression import experiment as regression
from experiments.regression.measures import predictor, programs
from experiments.tasks import oracle_log_likelihood
from experiments.tasks.sine import Sine
from kvq_jax.models import MODELS, Points
from tests.experiments.evaluating import evaluated
from tests.kvq_jax.nn.drawing import drawn


def experiment(config, **evaluation):
    _, own = split_evaluation(config.evaluation)
    return regression.build(config, own | evaluation, None)


@pytest.mark.parametrize("model, tasks, parts", [*((model, 4, 2) for model in sine.MODELS), ("intention", 3, 1)])
def test_evaluation_is_a_plain_loop_over_tasks_and_counts(model, tasks, parts):
    """Masked evaluation of many counts, of which some share a program, equals a model called on a shorter context.

    Tasks in whole batches are evaluated in parts.
    """
    config = sine.get_config(f"model={model},preset=tiny")
    made = experiment(config, tasks=tasks, batch_size=2, counts=(1, 3, 4))
    assert made.parts == parts
    variables, key = drawn(made.init, jax.random.key(0)), jax.random.key(5)
    network = build_named(MODELS, config.model, "config.model")
    task = Sine(**{k: v for k, v in config.task.items() if k != "name"} | {"max_context": 20})
    sample, apply = jax.jit(lambda key: task.sample(key, None)), jax.jit(network.apply)
    values = evaluated(made, variables, key)
    for index, task_key in enumerate(jax.random.split(key, tasks)):
        sampled = sample(task_key)
        for count in (1, 3, 4):
            context = Points(sampled.context.x[:count], sampled.context.y[:count])
            prediction = apply(variables, context, sampled.target.x)
            error = np.mean((prediction - sampled.target.y) ** 2)
            np.testing.assert_allclose(values[f"mse@{count}"][index], error, rtol=2e-3)


def test_untrained_intention_improves_with_observations():
    """Figures 6 and 7, dashed: at initialisation Intention interpolates (random features, non-zero biases)."""
    made = experiment(sine.get_config("model=intention,preset=quick"), tasks=40, counts=(5, 10, 20, 50))
    values = evaluated(made, made.init(jax.random.key(0)), jax.random.key(1))
    medians = [float(np.median(values[f"mse@{n}"])) for n in (5, 10, 20, 50)]
    assert sorted(medians, reverse=True) == medians and medians[-1] < 0.2 < 4.25


@pytest.mark.parametrize("source", ["digits"])
@pytest.mark.parametrize("model", pixels.MODELS)
def test_examples_of_pixels(model, source):
    made = experiment(pixels.get_config(f"model={model},preset=tiny,source={source}"))
    arrays = jax.jit(made.examples)(drawn(made.init, jax.random.key(0)), made.data["test"], jax.random.key(1))
    assert arrays["prediction"].shape == (4, 4, 64, 1) and arrays["target_y"].shape == (4, 64, 1)
    assert set(arrays) == {"context_x", "context_y", "target_x", "target_y", "prediction", "counts"}


def test_validation_images_are_held_out_of_training():
    config = pixels.get_config("preset=tiny")
    data, whole = experiment(config).data, sources.load(config.data.name, config.data.source, None)
    assert [len(data[split]) for split in ("train", "validation", "test")] == [1300, 200, 297]
    np.testing.assert_array_equal(np.concatenate([data["train"], data["validation"]]), whole.train["image"])
    np.testing.assert_array_equal(data["test"], whole.test["image"])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"counts": (5, 1)}, "increasing"),
        ({"counts": ()}, "both have numbers, or none"),
        ({"counts": (1, 500)}, "config.evaluation.counts"),
    ],
)
def test_impossible_counts_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        experiment(sine.get_config("preset=tiny"), **change)


def test_one_step_of_a_tiny_config_keeps_its_numbers():
    """Golden numbers. Where a change is meant, take the new ones from the message, in a commit that says why."""
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


def anything_made(arg, **evaluation):
    return experiment(anything.get_config(f"{arg},preset=tiny"), tasks=4, batch_size=2, **evaluation)


@pytest.mark.parametrize("model, kind", [("cnp", "marginal"), ("tnp_nd", "joint")])
def test_a_distribution_is_judged_beside_the_oracle(model, kind):
    """On single functions: the model's likelihood, that of the true posterior of the same kind, squared errors."""
    config = anything.get_config(f"model={model},task=gp,preset=tiny")
    made, network = anything_made(f"model={model},task=gp"), build_named(MODELS, config.model, "config.model")
    task = build_named(regression.TASKS, config.task, "config.task")
    variables, key = drawn(made.init, jax.random.key(0)), jax.random.key(5)
    values = evaluated(made, variables, key)

    @jax.jit
    def by_hand(task_key):
        sampled = task.sample(task_key, None)
        context, target, _ = sampled
        likelihood = network.apply(variables, context, target, key=key, method="log_likelihood")
        best = oracle_log_likelihood(task, sampled)[kind]
        laws = network.apply(variables, context, target.x, target.mask), task.oracle(sampled, *target[::2])
        return target, likelihood, best, [law.mean.reshape(-1, 1) for law in laws]

    for index, task_key in enumerate(jax.random.split(key, 4)[:2]):
        target, likelihood, best, means = by_hand(task_key)
        there = np.asarray(target.mask)
        errors = [np.mean(np.square(mean - target.y)[there]) for mean in means]
        expected = dict(log_likelihood=likelihood, oracle_log_likelihood=best, gap=best - likelihood)
        expected |= dict(zip(("mse", "oracle_mse"), errors))
        assert set(values) == set(expected)
        for name, number in expected.items():
            np.testing.assert_allclose(values[name][index], number, rtol=2e-3, atol=1e-4, err_msg=name)


def test_a_model_draws_from_a_key_that_no_sampler_has():
    """`split` gives what `fold_in` gives of 0, 1, 2, ...: a small number would be the key of a part of the task."""

    class Keyed:
        def apply(self, variables, context, target_x, target_mask, *, key):
            return jax.random.key_data(key)

    task_key, points = jax.random.key(3), Points(np.zeros((2, 1)), np.zeros((2, 1)))
    of_model = predictor(Keyed(), {}, points, task_key)(points)["prediction"]
    of_task = jax.random.key_data(jax.random.split(task_key, 64))
    assert not np.any(np.all(of_task == of_model, -1)) and not np.array_equal(of_model, jax.random.key_data(task_key))


def test_likelihoods_are_measured_for_numbers_of_observations_too():
    made = anything_made("model=cnp,task=sine", counts=(2, 9), example_counts=(3,))
    variables = drawn(made.init, jax.random.key(0))
    values = evaluated(made, variables, jax.random.key(1))
    assert set(values) == {f"{name}@{count}" for name in ("mse", "log_likelihood") for count in (2, 9)}
    arrays = jax.eval_shape(made.examples, variables, None, jax.random.key(1))
    assert arrays["prediction"].shape == arrays["prediction_std"].shape == (4, 1, 200, 1)


@pytest.mark.parametrize("model, task", [("intention", "gp"), ("cmanp", "sine"), ("bnp", "fixed_wheels")])
def test_models_of_one_paper_learn_tasks_of_another(model, task):
    made = anything_made(f"model={model},task={task}")
    optimizer = build_optimizer(OptimizerSettings(**sine.get_config("preset=tiny").optimizer), 2)
    state, step = drawn(make_init(made, optimizer), jnp.uint32(0)), jax.jit(make_step(made, optimizer, 4))
    for _ in range(2):
        state, metrics = step(state, made.data["train"])
        assert np.isfinite(metrics["loss"])


@pytest.mark.parametrize(
    "arg, change, message",
    [
        ("model=pair,task=gp", {"name": "mlp"}, "MLPRegressor does not fit config.task: it needs the same number of"),
        ("model=cnp,task=kabsch", {"dim_y": 1}, "CNP does not fit config.task: "),
        ("model=cnp,task=gp", {"dim_y": 3}, "CNP does not fit config.task: context.y has 1 outputs, the model dim_y=3"),
    ],
)
def test_a_model_that_does_not_fit_the_task_is_refused_in_one_line(arg, change, message):
    config = anything.get_config(f"{arg},preset=tiny")
    if "name" in change:
        config.model = anything.get_config("model=mlp,task=kabsch,preset=tiny").model
    else:
        config.model.update(change)
    with pytest.raises(ConfigError, match=message) as raised:
        experiment(config)
    assert "\n" not in str(raised.value)


def test_pixels_need_images_and_no_other_task_takes_them():
    for arg, data in (("task=pixels", None), ("task=gp", pixels.get_config("preset=tiny").data)):
        config = anything.get_config(f"{arg},preset=tiny")
        config.data = data
        with pytest.raises(ConfigError, match="config.data: a section for the task pixels"):
            experiment(config)


def test_counts_of_one_program_are_within_a_factor_of_four():
    """A curve may be of no observations alone, or begin there."""
    found = {counts: programs(counts) for counts in ((0,), (0, 1), (1, 2, 4, 5, 20))}
    assert found == {(0,): [[0]], (0, 1): [[0], [1]], (1, 2, 4, 5, 20): [[1], [2, 4, 5], [20]]}
