"""The optax chain that a config's `optimizer` section describes."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import optax

from experiments.harness.errors import ConfigError
from experiments.harness.settings import choose
from kvq_jax.domains import Count, Natural, NotNegative, Part, Positive
from kvq_jax.nn.alpha import THETA


@dataclasses.dataclass(frozen=True)
class OptimizerSettings:
    """Gradient clipping, additive weight decay, then the rule, at a scheduled learning rate."""

    name: str  # adam, adamw or sgd
    learning_rate: Positive  # the peak rate
    schedule: str  # constant, cosine (to 0 at the last step), exponential, staircase or drop (once)
    warmup_steps: Natural  # linear warm-up from 0; 0 for none
    decay_begin: Natural  # exponential, staircase: the step the decay begins at; drop: the step of the drop
    decay_steps: Count  # exponential, staircase: steps for one factor of decay_rate
    decay_rate: Positive  # drop: of the whole drop
    momentum: Part  # sgd only
    weight_decay: NotNegative  # added to the gradient (adam, sgd) or decoupled (adamw); of all but learned ridges
    clip_norm: NotNegative  # global norm; 0 for no clipping


def _exponential(s: OptimizerSettings, steps: int) -> optax.Schedule:
    own = dict(transition_begin=_begin(s), staircase=s.schedule == "staircase")
    return optax.exponential_decay(s.learning_rate, s.decay_steps, s.decay_rate, **own)


def _drop(s: OptimizerSettings, steps: int) -> optax.Schedule:
    return optax.piecewise_constant_schedule(s.learning_rate, {_begin(s): s.decay_rate})


def _begin(s: OptimizerSettings) -> int:
    """decay_begin among the steps after the warm-up, which schedules count."""
    return max(s.decay_begin - s.warmup_steps, 0)


def _decayed(params: Any) -> Any:
    """Which parameters decay: a learned ridge would go to that of theta = 0, whatever it starts at."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1:] != (jax.tree_util.DictKey(THETA),), params)


_SCHEDULES = {
    "constant": lambda s, steps: optax.constant_schedule(s.learning_rate),
    "cosine": lambda s, steps: optax.cosine_decay_schedule(s.learning_rate, max(steps - s.warmup_steps, 1)),
    "exponential": _exponential,
    "staircase": _exponential,
    "drop": _drop,
}
_RULES = {
    "adam": lambda s, rate: optax.adam(rate),
    "adamw": lambda s, rate: optax.adamw(rate, weight_decay=s.weight_decay, mask=_decayed),
    "sgd": lambda s, rate: optax.sgd(rate, momentum=s.momentum or None),
}

# Field -> the field that decides whether it is read, and of which values of that.
_READ_WITH = {
    "momentum": ("name", ("sgd",)),
    "decay_begin": ("schedule", ("exponential", "staircase", "drop")),
    "decay_steps": ("schedule", ("exponential", "staircase")),
    "decay_rate": ("schedule", ("exponential", "staircase", "drop")),
}


def check_given(settings: OptimizerSettings, keys: Iterable[str]) -> None:
    """Raises ConfigError where one of the keys of a command line sets what this rule or schedule does not read."""
    for key in keys:
        section, _, field = key.partition(".")
        if section != "optimizer" or field not in _READ_WITH:
            continue
        decides, values = _READ_WITH[field]
        if (given := getattr(settings, decides)) not in values:
            raise ConfigError(f"config.{key}: only {decides}={' or '.join(values)} reads it, this is {decides}={given}")


def build_optimizer(settings: OptimizerSettings, steps: int) -> optax.GradientTransformation:
    """The transformation for a run of `steps` steps. Raises ConfigError for an unknown rule or schedule."""
    schedule = choose(_SCHEDULES, settings.schedule, "config.optimizer.schedule")(settings, steps)
    if settings.warmup_steps >= steps:
        raise ConfigError(
            f"config.optimizer.warmup_steps: {settings.warmup_steps} is not below the {steps} steps of the run"
        )
    if settings.warmup_steps:
        warmup = optax.linear_schedule(0.0, settings.learning_rate, settings.warmup_steps)
        schedule = optax.join_schedules([warmup, schedule], [settings.warmup_steps])
    links = [choose(_RULES, settings.name, "config.optimizer.name")(settings, schedule)]
    if settings.weight_decay and settings.name != "adamw":
        links.insert(0, optax.add_decayed_weights(settings.weight_decay, _decayed))
    if settings.clip_norm:
        links.insert(0, optax.clip_by_global_norm(settings.clip_norm))
    return optax.chain(*links)
