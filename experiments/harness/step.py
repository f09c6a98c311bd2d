"""One training step as a pure function, and the compiled programs made of it.

A step samples its batch, takes the gradient and updates, all from (seed, step). `lax.scan` makes a chunk of steps one
XLA program, which the placement extends to all seeds of a cell.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from experiments.harness.experiment import Experiment, PyTree, Variables
from experiments.harness.placement import Placement, on_cpu
from experiments.harness.prng import key_of


class TrainState(flax.struct.PyTreeNode):
    """The whole state of one seed at one step. In a run every leaf has a leading seed axis."""

    seed: jax.Array  # uint32 []
    step: jax.Array  # int32 []
    params: PyTree
    collections: PyTree  # mutable linen collections, such as batch statistics
    opt_state: optax.OptState

    @property
    def variables(self) -> Variables:
        return {"params": self.params, **self.collections}


@dataclasses.dataclass(frozen=True)
class Program:
    """The compiled programs of a run. Every state has a leading seed axis S.

    Attributes:
      init: seeds [S] -> state.
      chunk: (state, train data) -> (state, metrics of each step: name -> [steps, S], whether the state is finite [S]).
        The state given is donated.
      validate: (state, validation data) -> the loss on fixed validation tasks, [S].
      evaluate: (state, test data, number of the part) -> name -> [S, tasks of this part].
      examples: (state, test data) -> name -> arrays of the first seed.
    """

    init: Callable[[jax.Array], TrainState]
    chunk: Callable[[TrainState, PyTree], tuple[TrainState, dict[str, jax.Array], jax.Array]]
    validate: Callable[[TrainState, PyTree], jax.Array]
    evaluate: Callable[[TrainState, PyTree, int], dict[str, jax.Array]]
    examples: Callable[[TrainState, PyTree], dict[str, jax.Array]]


def make_init(experiment: Experiment, optimizer: optax.GradientTransformation) -> Callable[[jax.Array], TrainState]:
    """seed [] -> the state at step 0."""

    def init(seed):
        collections = dict(experiment.init(key_of(seed, "init")))
        params = collections.pop("params")
        return TrainState(seed, jnp.zeros((), jnp.int32), params, collections, optimizer.init(params))

    return init


def sample_batch(experiment: Experiment, key: jax.Array, data: PyTree, batch_size: int) -> PyTree:
    """`batch_size` independent tasks, or what is random in them, stacked on a leading axis."""
    return jax.vmap(experiment.sample, (0, None))(jax.random.split(key, batch_size), data)


def on_batch(
    experiment: Experiment,
    function: Callable[[PyTree, jax.Array], Any],
    data: PyTree,
    batch_size: int,
    constrain: Callable,
    key: jax.Array,
    size_key: jax.Array,
) -> Any:
    """function(batch, key) of a batch drawn from `key`. Its size, in an experiment with sizes, is that of `size_key`.

    No seed may be in `size_key`: seeds that are trained at once share the size, so that each step is in one class.
    """
    sample_key, function_key = jax.random.split(key)
    drawn = sample_batch(experiment, sample_key, data, batch_size)
    if experiment.sizes is None:
        return function(constrain(drawn), function_key)

    def in_class(slots, size):
        batch = jax.vmap(lambda draws: experiment.sizes.fill(draws, slots, size))(drawn)
        return function(constrain(batch), function_key)

    return experiment.sizes.classes.switch(size_key, in_class)


def make_gradient(
    experiment: Experiment, micro_batches: int, constrain: Callable
) -> Callable[..., tuple[tuple[jax.Array, dict, dict], PyTree]]:
    """(state, batch, key) -> ((loss, metrics, collections), gradient), in equal parts of the batch, one by one.

    Losses and gradients are means over tasks, so the mean over the parts is that of the batch, to rounding; the memory
    is that of one part. Of metrics it is the mean too, and collections pass from part to part. Each part has a key of
    its own: a model that draws draws other numbers than for the whole batch.
    """

    def of_part(state, batch, key):
        def objective(params):
            return experiment.loss({"params": params, **state.collections}, batch, key)

        (loss, (metrics, collections)), gradient = jax.value_and_grad(objective, has_aux=True)(state.params)
        return (loss, metrics, collections), gradient

    def of_batch(state, batch, key):
        # Every micro_batches-th task: a batch that is split over devices stays so within each part.
        deal = lambda leaf: jnp.swapaxes(leaf.reshape(-1, micro_batches, *leaf.shape[1:]), 0, 1)

        def add(carry, given):
            part, part_key = given
            collections, total = carry
            found, gradient = of_part(state.replace(collections=collections), constrain(part), part_key)
            loss, metrics, collections = found
            return (collections, jax.tree.map(jnp.add, total, gradient)), (loss, metrics)

        parts = jax.tree.map(deal, batch), jax.random.split(key, micro_batches)
        start = state.collections, jax.tree.map(jnp.zeros_like, state.params)
        (collections, total), found = jax.lax.scan(add, start, parts)
        loss, metrics = jax.tree.map(lambda values: jnp.mean(values, 0), found)
        return (loss, metrics, collections), jax.tree.map(lambda leaf: leaf / micro_batches, total)

    return of_part if micro_batches == 1 else of_batch


def make_step(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    batch_size: int,
    constrain: Callable = lambda batch: batch,
    micro_batches: int = 1,
) -> Callable[..., tuple[TrainState, dict[str, jax.Array]]]:
    """(state of one seed, train data, index) -> (state, named scalars). `constrain` places the batch on devices.

    The index is that of the step, state.step; where the state is mapped over seeds, it must be given unmapped.
    """
    gradient_of = make_gradient(experiment, micro_batches, constrain)

    def step(state, data, index=None):
        index = state.step if index is None else index
        of_batch = functools.partial(gradient_of, state)
        keys = key_of(state.seed, "train", index), key_of(0, "sizes", index)
        found, gradient = on_batch(experiment, of_batch, data, batch_size, constrain, *keys)
        loss, metrics, collections = found
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        metrics = {"loss": loss, "gradient_norm": norm(gradient), **metrics}
        params = optax.apply_updates(state.params, updates)
        return state.replace(step=state.step + 1, params=params, collections=collections, opt_state=opt_state), metrics

    return step


def norm(gradient: PyTree) -> jax.Array:
    """The Euclidean norm of all leaves together, finite where it has a number: squares alone overflow beyond 1e19."""
    entries = ravel_pytree(gradient)[0]
    largest = jnp.max(jnp.abs(entries), initial=0.0)
    return largest * jnp.linalg.norm(entries / jnp.where(largest > 0, largest, 1.0))


def is_finite(state: TrainState) -> jax.Array:
    """Whether all numbers of each seed are finite, [S].

    A slope beyond 1e19 makes the second moment of Adam infinite, and then its parameter stands still for ever, while
    loss and gradient stay finite.
    """
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack([jnp.isfinite(leaf).all(range(1, leaf.ndim)) for leaf in leaves]).all(0)


def make_program(
    experiment: Experiment,
    optimizer: optax.GradientTransformation,
    placement: Placement,
    *,
    batch_size: int,
    chunk_steps: int,
    validation_batches: int,
    evaluation_seed: int,
    micro_batches: int = 1,
) -> Program:
    """The programs of a run under `placement`, compiled when first called.

    `evaluation_seed` fixes the tasks that all models are evaluated on.
    """
    step = make_step(experiment, optimizer, batch_size, placement.constrain, micro_batches)

    def steps(state, given):
        data, first = given
        return jax.lax.scan(lambda state, index: step(state, data, index), state, first + jnp.arange(chunk_steps))

    def chunk(state, data):
        state, metrics = placement.over_seeds(steps)(state, (data, state.step[0]))
        return state, jax.tree.map(jnp.transpose, metrics), is_finite(state)

    def validation_loss(variables, data):
        def loss(batch, key):
            return experiment.loss(variables, batch, key)[0]

        def one(index):
            keys = (key_of(evaluation_seed, purpose, index) for purpose in ("validate", "sizes"))
            return on_batch(experiment, loss, data, batch_size, placement.constrain, *keys)

        return jax.lax.map(one, jnp.arange(validation_batches)).mean()

    def validate(state, data):
        return placement.over_seeds(validation_loss)(state.variables, data)

    evaluation_key = key_of(evaluation_seed, "evaluate")  # a constant of the program: size classes read it

    def metrics_of(variables, given):
        data, number = given
        seen = experiment.part(data, number) if experiment.part else data
        return experiment.evaluate(variables, seen, evaluation_key)

    def evaluate(state, data, number):
        return placement.over_seeds(metrics_of)(state.variables, (data, number))

    def examples(state, data):
        first = jax.tree.map(lambda leaf: leaf[0], state.variables)
        return experiment.examples(first, data, key_of(evaluation_seed, "examples"))

    compiled = functools.partial(jax.jit, compiler_options=_compiler_options())
    reads = dict(in_shardings=(placement.state, placement.everywhere), out_shardings=placement.everywhere)
    return Program(
        init=compiled(
            jax.vmap(make_init(experiment, optimizer)), in_shardings=placement.everywhere, out_shardings=placement.state
        ),
        chunk=compiled(
            chunk,
            donate_argnums=0,
            in_shardings=(placement.state, placement.everywhere),
            out_shardings=(placement.state, placement.everywhere, placement.everywhere),
        ),
        validate=compiled(validate, **reads),
        evaluate=compiled(
            evaluate,
            in_shardings=(placement.state, placement.everywhere, placement.everywhere),
            out_shardings=placement.everywhere,
        ),
        examples=compiled(examples, **reads),
    )


def _compiler_options() -> dict[str, int]:
    """On a CPU level 2 of LLVM: programs as fast as of level 3 in a fourth to a third less time to compile.

    Flags in XLA_FLAGS win. `scripts.benchmark harness` prints what starting takes.
    """
    level = "xla_backend_optimization_level"
    return {level: 2} if on_cpu() and level not in os.environ.get("XLA_FLAGS", "") else {}
