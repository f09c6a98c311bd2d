"""Marked event sequences, and their likelihood in the parts that tables show."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Events(NamedTuple):
    """The events of a sequence that is observed for a time, in their order. A batch has leading dimensions.

    Times are gaps, so that long sequences keep their precision and no sequence depends on where its clock starts.
    Absent events come after those that are there; what they hold is never read. Nobody looks for
    marks out of range: what comes of them is nothing to rely on.
    """

    gap: jax.Array  # [..., L], time since the event before, of the first since observation began; >= 0
    mark: jax.Array  # int32 [..., L], the kind of the event, 0 <= mark < number of marks
    mask: jax.Array | None  # bool [..., L], True = there; None: all are
    rest: jax.Array  # [...], time observed after the last event, >= 0: no event happened in it


class EventLogLikelihood(NamedTuple):
    """log p(events) is the sum of all three. Of n events: n densities of a time, n probabilities of a mark."""

    time: jax.Array  # [..., L], log density of each gap given the events before it, per unit of time; 0 where absent
    mark: jax.Array  # [..., L], log probability of each mark given these and the gap; 0 where absent
    rest: jax.Array  # [...], log probability of no event in `rest`

    @property
    def total(self) -> jax.Array:
        """log p(events) of each sequence, [...]."""
        return self.time.sum(-1) + self.mark.sum(-1) + self.rest


def whole_mask(events: Events) -> jax.Array:
    """The mask [..., L] of events: all True where it is None."""
    return jnp.ones(events.gap.shape, bool) if events.mask is None else events.mask


def number(events: Events) -> jax.Array:
    """The number of events of each sequence, int32 [...]."""
    return whole_mask(events).sum(-1, dtype=jnp.int32)


def packed(events: Events) -> Events:
    """The same events with those that are there first: what it takes to drop an event from anywhere.

    A dropped event takes its gap with it. Where the time until the next event matters, add it to that event's gap.
    """
    mask = whole_mask(events)
    order = jnp.argsort(~mask, axis=-1, stable=True)
    take = lambda array: jnp.take_along_axis(array, order, -1)
    return events._replace(gap=take(events.gap), mark=take(events.mark), mask=take(mask))


def padded(events: Events, slots: int) -> Events:
    """Events [..., L] with absent events after them, [..., slots]."""
    fill = slots - events.gap.shape[-1]
    grow = lambda array: jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, fill)])
    return events._replace(gap=grow(events.gap), mark=grow(events.mark), mask=grow(whole_mask(events)))
