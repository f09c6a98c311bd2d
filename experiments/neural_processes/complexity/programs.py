"""What a neural process does, as programs: conditioning, querying, updating, judging and training; memory and time.

A model with a state of constant size is conditioned in chunks. Any other is conditioned at once, and an update
conditions it anew.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness.programs import Program, ones
from kvq_jax.models import NeuralProcess
from kvq_jax.models.neural_processes import condition, has_state, sample
from kvq_jax.models.points import Points


class Model(NamedTuple):
    """A model, the shapes of its variables, the points that a state takes at once, and the shapes of its functions."""

    module: NeuralProcess
    variables: Any
    chunk: int
    dim_x: int
    batch: tuple[int, ...] = ()

    def points(self, n: int) -> Points:
        """Shapes of n points of each function."""
        dims = self.dim_x, self.module.dim_y
        return Points(*(jax.ShapeDtypeStruct((*self.batch, n, dim), np.float32) for dim in dims))


def shaped(module: NeuralProcess, chunk: int, dim_x: int) -> Model:
    """The model of functions of dim_x inputs, its variables not computed."""
    model, init = Model(module, None, chunk, dim_x), functools.partial(module.init, key=jax.random.key(1))
    points = model.points(2)
    return model._replace(variables=jax.eval_shape(init, jax.random.key(0), points, points.x))


def conditioning(model: Model, n: int) -> Program | None:
    """context [n] -> memory; None for a model that reads its context anew for each query."""
    if type(model.module).remember is NeuralProcess.remember:
        return None
    if has_state(model.module):
        return Program(functools.partial(_condition, model), (model.variables, model.points(n)))

    def remember(variables, context):
        return model.module.apply(variables, context, key=jax.random.key(0), method="remember")

    return Program(remember, (model.variables, model.points(n)))


def querying(model: Model, n: int, m: int) -> Program:
    """(state or memory of n points, or the points; targets [m]) -> moments at the targets; by blocks: one sample."""
    key, remember = jax.random.key(0), conditioning(model, n)
    method = "query" if remember else "__call__"
    finishes = has_state(model.module)

    def query(variables, memory, x):
        if finishes:
            memory = model.module.apply(variables, memory, method="finish")
        prediction = model.module.apply(variables, memory, x, key=key, method=method)
        return prediction.mean, prediction.variance

    def by_blocks(variables, state, x):
        seen, size = ones(model.points(0)), model.module.block_size
        return sample(model.module, variables, seen, x, key=key, block_size=size, num_samples=1, state=state)

    run = by_blocks if remember and hasattr(model.module, "block_size") else query
    memory = jax.eval_shape(remember.run, *remember.arguments) if remember else model.points(n)
    return Program(run, (model.variables, memory, model.points(m).x))


def updating(model: Model, n: int, u: int) -> Program | None:
    """(memory of n points, u more) -> memory of all; without a state, from all points."""
    remember = conditioning(model, n)
    if remember is None:
        return None
    if not has_state(model.module):
        return conditioning(model, n + u)
    state = jax.eval_shape(remember.run, *remember.arguments)
    update = lambda variables, state, context: _condition(model, variables, context, state)
    return Program(update, (model.variables, state, model.points(u)))


def judging(model: Model, n: int, m: int) -> Program:
    """(context [n], targets [m]) -> log-likelihood per target."""

    def log_likelihood(variables, context, target):
        return model.module.apply(variables, context, target, key=jax.random.key(0), method="log_likelihood")

    return Program(log_likelihood, (model.variables, model.points(n), model.points(m)))


def training(model: Model, n: int, m: int) -> Program:
    """(context [n], targets [m]) -> the gradient of the mean loss."""

    def loss(variables, context, target):
        return jnp.mean(model.module.apply(variables, context, target, key=jax.random.key(0), method="loss"))

    return Program(jax.grad(loss), (model.variables, model.points(n), model.points(m)))


# Phase -> (model, context points, targets or new points) -> its program; None: the model has no such phase.
PHASES: dict[str, Callable[[Model, int, int], Program | None]] = {
    "conditioning": lambda model, n, m: conditioning(model, n),
    "querying": querying,
    "updating": updating,
    "anew": lambda model, n, u: conditioning(model, n + u),
    "judging": judging,
    "training": training,
}


def _condition(model: Model, variables: Any, context: Points, state: Any = None) -> Any:
    return condition(model.module, variables, context, model.chunk, state=state)
