"""The interface of a neural process: from context points to a predictive distribution, with its loss and likelihood.

    predictive = model.apply(variables, context, target_x, target_mask, key=key)
    loss = model.apply(variables, context, target, key=key, method="loss")                          # [...]
    value = model.apply(variables, context, target, key=key, method="log_likelihood")               # [...], per target

Contexts and targets are `Points` with the same leading dimensions. A masked point is an absent point, whose place may
hold any finite number, and no context at all is allowed. Losses and likelihoods are of each task: the caller takes the
mean over a batch.

Training has a second form, in models whose loss reads context and targets alike. All points are in one array, the
context first, so that an array of few slots holds any numbers of both:

    loss = model.apply(variables, context, points, key=key, method="loss_of_points")                # the same loss

A context can be remembered once and queried many times:

    memory = model.apply(variables, context, key=key, method="remember")
    predictive = model.apply(variables, memory, target_x, target_mask, key=key, method="query")     # = the first line

A model with a state of constant size can be conditioned in parts, in any order, and finished for queries at any time:

    state = model.apply(variables, batch_shape, method="init_state")
    state = model.apply(variables, state, more_context, method="update")
    state = model.apply(variables, state, other_state, method="merge")
    memory = model.apply(variables, state, method="finish")

A model whose context attends to itself in one layer has no such state, but it can keep a growing context in a cache,
where a new point costs O(N) in place of O(N^2):

    cache = model.apply(variables, batch_shape, capacity, method="init_cache")
    cache = model.apply(variables, cache, more_context, position, method="extend")       # into empty places
    cache = model.apply(variables, cache, capacity, method="widen")                      # room for more
    memory = model.apply(variables, cache, method="finish_cache")
"""

from typing import Any

import jax
from numpyro.distributions import Distribution

from kvq_jax.domains import Count
from kvq_jax.models.doors import Guarded
from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.points import Points


def need_key(key: jax.Array | None, drawer: str) -> jax.Array:
    """The key. Raises ValueError that names the drawer if there is none."""
    if key is None:
        raise ValueError(f"{drawer} draws random numbers: give a key")
    return key


class NeuralProcess(Guarded):
    """The interface. A model defines `__call__`, and `loss` and `log_likelihood` where they differ from these.

    Parameters are float32 where `param_dtype` says nothing else; `dim_y` is the number of outputs. `key` is for models
    that draw (see each); others ignore it. `likelihood` says what `log_likelihood` is, divided by the number of
    targets: 'marginal', the sum over targets, each alone given the context; or 'joint', that of all targets together.
    The two are different metrics.
    """

    empties = True

    likelihood = "marginal"

    slot_costs = (1.0, 1.0)  # of a slot of the context beside one of the targets, or of the points, in training

    dim_y: Count = 1

    def __call__(self, context: Points, target_x: jax.Array, target_mask=None, *, key=None) -> Distribution:
        """The predictive distribution at target_x [..., M, dx], of a kind that `predictive` lists."""
        raise NotImplementedError

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """The training loss of each task, [...]: here the mean negative log-likelihood of the targets.

        Models that define `loss_of_points` compute it by `loss_of_points(context, join(context, target))`.
        """
        return -self.log_likelihood(context, target, key=key)

    def log_likelihood(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """log p(target.y | context) / M of each task, [...]: summed over outputs, averaged over the targets there."""
        prediction = self(context, target.x, target.mask, key=key)
        total = predictive.log_prob(prediction, target.y, target.mask)
        return total / predictive.count(target.mask, target.x.shape[-2])

    def remember(self, context: Points, *, key: jax.Array | None = None) -> Any:
        """What `query` needs of a context: of constant size where the model has a state, else growing with the context.

        Raises ValueError for a model that reads its context anew with each set of targets.
        """
        raise ValueError(f"{type(self).__name__} keeps nothing of a context: it reads it anew with each set of targets")

    def init_state(self, batch: tuple[int, ...] = ()) -> Any:
        """The state of no context, with leading dimensions `batch`. Raises ValueError if the model has no state."""
        raise self._no_state()

    def update(self, state: Any, context: Points) -> Any:
        """The state after more context; exact, in any order and any parts."""
        raise self._no_state()

    def merge(self, state: Any, other: Any) -> Any:
        """The state of both contexts; associative and commutative."""
        raise self._no_state()

    def finish(self, state: Any) -> Any:
        """The memory of all context in the state, after the work that no query changes; by default the state itself."""
        return state

    def init_cache(self, batch: tuple[int, ...], capacity: int) -> Any:
        """A cache of no context, with room for `capacity` points. Raises ValueError if the model has no cache."""
        raise ValueError(f"{type(self).__name__} has no cache: it reads its context anew")

    def query(self, memory: Any, target_x: jax.Array, target_mask=None, *, key=None) -> Distribution:
        """What `__call__` returns for all context in the memory, which `remember` or `finish` gave."""
        raise self._no_state()

    def _no_state(self) -> ValueError:
        return ValueError(f"{type(self).__name__} has no state of constant size: give it the whole context at once")
