"""The optimizer section against updates worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import common
from experiments.harness.errors import ConfigError
from experiments.harness.optimizer import OptimizerSettings, build_optimizer, check_given
from kvq_jax.nn.alpha import Alpha


def updates(gradients, steps=10, params=2.0, **section):
    """The updates of one parameter, or of an array of them, for a sequence of gradients."""
    optimizer = build_optimizer(OptimizerSettings(**common.optimizer(**section)), steps)
    params, made = jnp.asarray(params), []
    state = optimizer.init(params)
    for gradient in gradients:
        update, state = optimizer.update(jnp.asarray(gradient), state, params)
        params = params + update
        made.append(np.asarray(update))
    return np.array(made)


def test_momentum_with_additive_weight_decay():
    # v1 = 1 + 0.1 * 2 = 1.2; theta = 2 - 0.12 = 1.88; v2 = 0.9 * 1.2 + 1 + 0.188 = 2.268
    made = updates([1.0, 1.0], name="sgd", learning_rate=0.1, momentum=0.9, weight_decay=0.1)
    np.testing.assert_allclose(made, [-0.12, -0.2268], rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_learnt_ridge_does_not_decay(name):
    """With a decay of 5e-4 an alpha that starts at 50 would be at 0.7 after a few thousand steps of nothing else."""
    variables = Alpha("softplus", 50.0).init(jax.random.key(0))["params"]
    params = {"mixer": {"alpha": variables, "out": {"kernel": jnp.full((2, 2), 3.0)}}}
    optimizer = build_optimizer(OptimizerSettings(**common.optimizer(name, 0.1, weight_decay=0.5)), 10)
    update, _ = optimizer.update(jax.tree.map(jnp.zeros_like, params), optimizer.init(params), params)
    assert update["mixer"]["alpha"]["theta"] == 0
    assert np.all(update["mixer"]["out"]["kernel"] < 0)


def test_adamw_decays_the_parameter_itself():
    (made,) = updates([0.0], name="adamw", learning_rate=0.1, weight_decay=0.5)
    np.testing.assert_allclose(made, -0.1 * 0.5 * 2.0, rtol=1e-6)


def test_clipping_by_global_norm_of_the_gradient_before_its_decay():
    section = dict(name="sgd", learning_rate=0.1, clip_norm=1.0)
    made = updates([[3.0, -4.0], [0.3, -0.4]], params=[2.0, 1.0], **section)
    np.testing.assert_allclose(made, [[-0.06, 0.08], [-0.03, 0.04]], rtol=1e-6)
    (made,) = updates([[3.0, -4.0]], params=[2.0, 1.0], weight_decay=0.5, **section)
    np.testing.assert_allclose(made, [-0.1 * (0.6 + 1.0), -0.1 * (-0.8 + 0.5)], rtol=1e-6)


def test_exponential_schedule_of_the_few_shot_experiments():
    """lr0 * 0.8 ** (max(0, t - 2) / 3) with the published shape and small numbers."""
    section = dict(schedule="exponential", decay_begin=2, decay_steps=3, decay_rate=0.8)
    made = updates([1.0] * 6, name="sgd", learning_rate=0.5, **section)
    np.testing.assert_allclose(-made, [0.5 * 0.8 ** (max(0, t - 2) / 3) for t in range(6)], rtol=1e-6)


def test_a_rate_that_falls_in_steps():
    section = dict(schedule="staircase", decay_begin=1, decay_steps=2, decay_rate=0.3)
    made = -updates([1.0] * 6, name="sgd", learning_rate=1.0, **section)
    np.testing.assert_allclose(made, [1, 1, 1, 0.3, 0.3, 0.09], rtol=1e-6)


@pytest.mark.parametrize("schedule", ["drop", "exponential"])
def test_a_decay_begins_at_its_step_after_a_warmup_too(schedule):
    section = dict(schedule=schedule, warmup_steps=2, decay_begin=4, decay_steps=1, decay_rate=0.5)
    made = -updates([1.0] * 6, name="sgd", learning_rate=1.0, **section)
    np.testing.assert_allclose(made[:5], [0.0, 0.5, 1.0, 1.0, 1.0 if schedule == "exponential" else 0.5], rtol=1e-6)
    assert made[5] == 0.5


def test_warmup_then_cosine_to_zero():
    made = -updates([1.0] * 9, steps=8, name="sgd", learning_rate=1.0, schedule="cosine", warmup_steps=2)
    expected = [0.0, 0.5] + [0.5 * (1 + np.cos(np.pi * t / 6)) for t in range(7)]
    np.testing.assert_allclose(made, expected, atol=1e-6)


@pytest.mark.parametrize(
    "section, message",
    [
        (dict(name="adm", learning_rate=1e-3), "did you mean 'adam'"),
        (dict(name="adam", learning_rate=1e-3, schedule="cosin"), "did you mean 'cosine'"),
        (dict(name="adam", learning_rate=1e-3, warmup_steps=10), "not below the 10 steps"),
    ],
)
def test_refuses(section, message):
    with pytest.raises(ConfigError, match=message):
        build_optimizer(OptimizerSettings(**common.optimizer(**section)), 10)


@pytest.mark.parametrize(
    "section, field, message",
    [
        (dict(name="adam", momentum=0.9), "momentum", "only name=sgd reads it, this is name=adam"),
        (dict(name="sgd", decay_rate=0.5), "decay_rate", "only schedule=exponential or staircase or drop reads it"),
        (
            dict(name="sgd", schedule="drop", decay_steps=3),
            "decay_steps",
            "only schedule=exponential or staircase reads it",
        ),
    ],
)
def test_a_command_line_sets_only_what_is_read(section, field, message):
    """What a preset sets stands: another rule or schedule may be chosen for it."""
    settings = OptimizerSettings(**common.optimizer(learning_rate=1e-3, **section))
    with pytest.raises(ConfigError, match=f"config.optimizer.{field}: {message}"):
        check_given(settings, ["train.steps", f"optimizer.{field}"])
    check_given(settings, ["optimizer.learning_rate", f"model.{field}"])


def test_a_rate_that_drops_once():
    section = dict(schedule="drop", decay_begin=2, decay_rate=0.1)
    made = updates([1.0] * 4, name="sgd", learning_rate=0.5, **section)
    np.testing.assert_allclose(-made, [0.5, 0.5, 0.05, 0.05], rtol=1e-6)
