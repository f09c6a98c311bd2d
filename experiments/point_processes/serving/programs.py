"""What a model of events does, as programs: the gradient of sequences, and an event absorbed with the next forecast."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments.harness.programs import Program
from kvq_jax.models.event_processes.events import Events
from kvq_jax.models.event_processes.thp import THPMixture

UNIT_GAPS = dict(time_scale=1.0, log_mean=0.0, log_std=1.0)  # of gaps of one unit, about


def sequence(events: int, batch: tuple[int, ...] = ()) -> Events:
    """Shapes of sequences of so many events, all there."""
    gap = jax.ShapeDtypeStruct((*batch, events), jnp.float32)
    mark = jax.ShapeDtypeStruct((*batch, events), jnp.int32)
    return Events(gap, mark, None, jax.ShapeDtypeStruct(batch, jnp.float32))


def variables_of(model: nn.Module) -> Any:
    """Shapes of the variables of a model."""
    return jax.eval_shape(model.lazy_init, jax.random.key(0), sequence(4))


def state_of(model: nn.Module, events: int) -> Any:
    """Shapes of the state of so many events: where it grows with them, with room for one more."""
    room = dict(capacity=events + 1) if isinstance(model, THPMixture) else {}
    return jax.eval_shape(functools.partial(model.apply, method="init_state", **room), variables_of(model))


def serving(model: nn.Module, events: int) -> Program:
    """(variables, state of so many events, gap, mark) -> the state with the event, and the next forecast."""

    def serve(variables, state, gap, mark):
        state = model.apply(variables, state, gap, mark, method="update")
        forecast = model.apply(variables, state, method="predict")
        return state, forecast.time.mean, forecast.time.median, forecast.mark_logits(gap)

    one = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    return Program(serve, (variables_of(model), state_of(model, events), *one))


def training(model: nn.Module, events: int, batch: tuple[int, ...] = ()) -> Program:
    """(variables, sequences of so many events) -> the gradient of the loss."""

    def loss(variables, given):
        return model.apply(variables, given, key=jax.random.key(0), method="loss")

    return Program(jax.grad(loss), (variables_of(model), sequence(events, batch)))
