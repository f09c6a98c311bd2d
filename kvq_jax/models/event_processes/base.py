"""The interface of a temporal point process: from events to forecasts of the next, with its likelihood.

    forecast = model.apply(variables, events)                                                     # [..., L + 1]
    parts = model.apply(variables, events, key, method="log_likelihood")                          # EventLogLikelihood
    loss = model.apply(variables, events, key, method="loss")                                     # a number

Forecast i is that of event i + 1 given the i events before it; all come from one pass. A masked event is an absent
event. Events may also be served one at a time, or a chunk at a time:

    state = model.apply(variables, batch_shape, method="init_state")
    state = model.apply(variables, state, gap, mark, method="update")
    state = model.apply(variables, state, events, method="update_many")
    forecast = model.apply(variables, state, method="predict")                                    # [...]
    future = model.apply(variables, state, key, 100, method="simulate")
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.domains import Count, Positive
from kvq_jax.models.doors import Guarded
from kvq_jax.models.event_processes.events import EventLogLikelihood, Events, number, whole_mask
from kvq_jax.nn.waiting_times import LogNormalMixture, SoftplusIntensity

# A gap below this share of time_scale counts as it: events at the same time have a finite density.
LEAST_GAP = 1e-6


class Forecast(NamedTuple):
    """What comes next: `time` is the law of the gap, with leading dimensions [...] and in the unit of the data."""

    time: LogNormalMixture | SoftplusIntensity
    logits: Array | None  # [..., K] of the mark, whatever the gap; None: the intensities of `time` tell marks apart

    def mark_logits(self, gap: Array | None = None) -> Array:
        """log p(mark | gap [...]), [..., K], normalised; None: given that the event comes at some time."""
        if self.logits is None:
            return self.time.log_kinds(gap)
        shape = jnp.broadcast_shapes(jnp.shape(gap) if gap is not None else (), self.logits.shape[:-1])
        return jnp.broadcast_to(jax.nn.log_softmax(self.logits, -1), (*shape, self.logits.shape[-1]))


class Encoded(NamedTuple):
    """What a history comes to."""

    hidden: Array  # [..., D]
    elapsed: Array  # [...], from the start of observation to the last event, in units of time_scale


class EventProcess(Guarded):
    """The interface. A model has a `head`, (hidden, elapsed) -> Forecast, and defines `encode` and its states.

    The first four fields are of the data. Encodings of time divide it by time_scale, in float32 at least: beyond
    millions of events a clock that runs on loses the place of each. A gap counts as LEAST_GAP time_scale at least.
    """

    num_marks: Count = 1  # kinds of events
    time_scale: Positive = 1.0  # what times are divided by: the mean gap of the training data
    log_mean: float = 0.0  # mean of the log gaps of the training data
    log_std: Positive = 1.0  # and their standard deviation

    def encode(self, seen: Events, key: Array | None) -> Encoded:
        """The histories of 0, 1, ..., L events, [..., L + 1]; with a key as in training, with dropout if there is any.

        `seen` is what `absent` made of the events.
        """
        raise NotImplementedError

    def init_state(self, batch: tuple[int, ...] = ()) -> Any:
        """The state of no event, with leading dimensions `batch`."""
        raise NotImplementedError

    def update_many(self, state: Any, events: Events) -> Any:
        """The state after a chunk of events [..., L], whose `rest` is not read."""
        raise NotImplementedError

    def recall(self, state: Any) -> Encoded:
        """What the history in a state comes to, [...]."""
        raise NotImplementedError

    def __call__(self, events: Events) -> Forecast:
        """Element i is the forecast of event i + 1 given the i events before it, [..., L + 1]."""
        return self.head(*self.encode(absent(events), None))

    def log_likelihood(self, events: Events, key: Array | None = None) -> EventLogLikelihood:
        """log p(events) in its parts. `key` is for models that draw."""
        return self._judged(events, None, key)

    def loss(self, events: Events, key: Array | None = None, train: bool = True) -> Array:
        """Minus the log-likelihood of a batch by its number of events, []; `key` is for models that draw.

        With a key there is dropout, if the model has any and `train` says so.
        """
        dropout, key = (None, None) if key is None else jax.random.split(key)
        total = self._judged(events, dropout if train else None, key).total.sum()
        return -total / jnp.maximum(number(events).sum(), 1)

    def update(self, state: Any, gap: Array, mark: Array, mask: Array | None = None) -> Any:
        """The state after one more event of gap [...] and mark [...], where mask [...] is True, or everywhere."""
        mask = None if mask is None else mask[..., None]
        return self.update_many(state, Events(gap[..., None], mark[..., None], mask, jnp.zeros_like(gap)))

    def predict(self, state: Any) -> Forecast:
        """The forecast of the next event, [...]."""
        return self.head(*self.recall(state))

    def next_time(self, state: Any) -> LogNormalMixture | SoftplusIntensity:
        """The law of the next gap, [...]."""
        return self.predict(state).time

    def next_mark(self, state: Any, gap: Array | None = None) -> Array:
        """The log probabilities of the next mark, [..., K]: see Forecast.mark_logits."""
        return self.predict(state).mark_logits(gap)

    def simulate(self, state: Any, key: Array, num_events: int) -> Events:
        """A future of `num_events` events after a state, [..., num_events]; `rest` is 0.

        Where the process ends before, as it may if a law has `never` above 0, events are absent from then on.
        """

        def step(model, carry, key):
            state, alive = carry
            of_gap, of_mark = jax.random.split(key)
            forecast = model.predict(state)
            gap = forecast.time.sample(of_gap)
            alive = alive & jnp.isfinite(gap)
            gap = jnp.where(alive, gap, 0)
            mark = jax.random.categorical(of_mark, forecast.mark_logits(gap)).astype(jnp.int32)
            return (model.update(state, gap, mark, alive), alive), (gap, mark, alive)

        alive = jnp.ones(self.recall(state).hidden.shape[:-1], bool)
        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        _, drawn = scan(self, (state, alive), jax.random.split(key, num_events))
        gap, mark, mask = (jnp.moveaxis(array, 0, -1) for array in drawn)
        return Events(gap, mark, mask, jnp.zeros(gap.shape[:-1], gap.dtype))

    def log_prob(self, time: Any, gap: Array, key: Array | None) -> Array:
        """The log density of a law at gaps [...]."""
        return time.log_prob(gap)

    def log_survival(self, time: Any, gap: Array, key: Array | None) -> Array:
        """The log probability of a law that gaps [...] pass."""
        return time.log_survival(gap)

    def log_gap(self, gap: Array) -> Array:
        """Log gaps, standardised by the training data."""
        return (jnp.log(self.floored(gap)) - self.log_mean) / self.log_std

    def floored(self, gap: Array) -> Array:
        """Gaps as long as the least that a density is asked at."""
        return jnp.maximum(gap, LEAST_GAP * self.time_scale)

    def _judged(self, events: Events, of_encoding: Array | None, of_integral: Array | None) -> EventLogLikelihood:
        seen = absent(events)
        encoded = self.encode(seen, of_encoding)
        before = self.head(encoded.hidden[..., :-1, :], encoded.elapsed[..., :-1])
        after = self.head(*at(encoded, number(seen)))
        keys = (None, None) if of_integral is None else jax.random.split(of_integral)
        time = self.log_prob(before.time, self.floored(seen.gap), keys[0])
        logits = before.mark_logits(self.floored(seen.gap))
        mark = jnp.take_along_axis(logits, seen.mark[..., None], -1)[..., 0]
        rest = jnp.where(seen.rest > 0, self.log_survival(after.time, self.floored(seen.rest), keys[1]), 0)
        return EventLogLikelihood(jnp.where(seen.mask, time, 0), jnp.where(seen.mask, mark, 0), rest)


def absent(events: Events) -> Events:
    """The events with what is masked set to 0, so that nothing it holds reaches a number or a gradient."""
    mask = whole_mask(events)
    return events._replace(gap=jnp.where(mask, events.gap, 0), mark=jnp.where(mask, events.mark, 0), mask=mask)


def at(encoded: Encoded, index: Array) -> Encoded:
    """Element `index` [...] of each sequence of histories [..., L]."""
    hidden = jnp.take_along_axis(encoded.hidden, index[..., None, None], -2)[..., 0, :]
    return Encoded(hidden, jnp.take_along_axis(encoded.elapsed, index[..., None], -1)[..., 0])


def clock(gap: Array, scale: float, start: Array | float = 0.0) -> Array:
    """The times of events [..., L] after `start` [...], in units of `scale`; in float32 at least."""
    gap = gap.astype(jnp.promote_types(gap.dtype, jnp.float32))
    return jnp.asarray(start, gap.dtype)[..., None] + jnp.cumsum(gap / scale, -1)
