"""Temporal point processes whose likelihood is known exactly, sampled inside jit.

A process is told by what it remembers of the events so far, its state, and by four functions of it: the state after an
event, the intensity of each mark until the next event, the integral of their sum, and a draw of the next event. Its
kinds are in event_processes.py. All times are gaps since the last event, so that float32 is enough for long sequences.

Before observation begins there are no events.
"""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kvq_jax.domains import Count, Positive
from kvq_jax.models.event_processes.events import EventLogLikelihood, Events, whole_mask

State = Any  # a pytree of arrays of fixed shapes


@dataclasses.dataclass(frozen=True, kw_only=True)
class PointProcess(abc.ABC):
    """A process that is observed until `horizon` or until its event number `max_events`, whichever comes first.

    When observation ends is known from the events so far, so the likelihood is that of the process.
    """

    max_events: Count
    horizon: Positive

    @property
    def num_marks(self) -> int:
        """The number of kinds of events."""
        return 1

    @abc.abstractmethod
    def start(self) -> State:
        """What is remembered when observation begins."""

    @abc.abstractmethod
    def after(self, state: State, gap: jax.Array, mark: jax.Array) -> State:
        """What is remembered once an event of `mark` [] has come `gap` [] after the last one."""

    @abc.abstractmethod
    def log_intensity(self, state: State, gap: jax.Array) -> jax.Array:
        """log intensity of each mark, [num_marks], a `gap` [] without events after the last one."""

    @abc.abstractmethod
    def integral(self, state: State, gap: jax.Array) -> jax.Array:
        """The intensity of all marks, integrated over a `gap` [] without events; []."""

    @abc.abstractmethod
    def draw(self, key: jax.Array, state: State) -> tuple[jax.Array, jax.Array]:
        """The gap [] to the next event, above 0, and its mark, int32 []."""

    def sample(self, key: jax.Array, data: None = None) -> Events:
        """Events of one observation, in max_events slots. `data` is not used."""

        def step(carry, key):
            state, left, going = carry
            gap, mark = self.draw(key, state)
            there = going & (gap <= left)
            gap, mark = jnp.where(there, gap, 0), jnp.where(there, mark, 0)
            return (_if(there, self.after(state, gap, mark), state), left - gap, there), (gap, mark, there)

        start = self.start(), jnp.asarray(self.horizon, float), jnp.asarray(True)
        (_, left, full), (gap, mark, mask) = jax.lax.scan(step, start, jax.random.split(key, self.max_events))
        return Events(gap, mark, mask, jnp.where(full, 0, left))

    def log_likelihood(self, events: Events) -> EventLogLikelihood:
        """The exact log-likelihood of one sequence [L], of any length."""
        gap, mark, mask = _present(events)
        before, last = self._states(gap, mark, mask)
        log_intensity = jax.vmap(self.log_intensity)(before, gap)
        time = jax.nn.logsumexp(log_intensity, -1) - jax.vmap(self.integral)(before, gap)
        of_mark = jnp.take_along_axis(jax.nn.log_softmax(log_intensity), mark[:, None], -1)[:, 0]
        none = -self.integral(last, events.rest)
        return EventLogLikelihood(jnp.where(mask, time, 0), jnp.where(mask, of_mark, 0), none)

    def compensator(self, events: Events) -> jax.Array:
        """The intensity integrated over each gap of one sequence, [L]; 0 where absent.

        These residuals are independent and Exp(1) if the events are of this process (time rescaling). An end at the
        horizon cuts the last one short, to -log_likelihood(events).rest, and so leaves out long ones rather than short.
        """
        gap, mark, mask = _present(events)
        before, _ = self._states(gap, mark, mask)
        return jnp.where(mask, jax.vmap(self.integral)(before, gap), 0)

    def intensity(self, events: Events, time: jax.Array) -> jax.Array:
        """The intensity of all marks at times [T] since observation began, given the events before them; [T].

        At the time of an event it is the limit from the left.
        """
        gap, mark, mask = _present(events)
        before, last = self._states(gap, mark, mask)
        states = jax.tree.map(lambda of_all, of_last: jnp.concatenate([of_all, of_last[None]]), before, last)
        arrival = jnp.cumsum(gap)
        seen = jnp.searchsorted(jnp.where(mask, arrival, jnp.inf), time)  # events before each time
        since = time - jnp.concatenate([jnp.zeros(1), arrival])[seen]
        of_time = jax.tree.map(lambda leaf: leaf[seen], states)
        return jnp.exp(jax.nn.logsumexp(jax.vmap(self.log_intensity)(of_time, since), -1))

    def _states(self, gap: jax.Array, mark: jax.Array, mask: jax.Array) -> tuple[State, State]:
        """The state before each event, with a leading axis [L], and the one after the last."""

        def step(state, event):
            gap, mark, there = event
            return _if(there, self.after(state, gap, mark), state), state

        last, before = jax.lax.scan(step, self.start(), (gap, mark, mask))
        return before, last


def exponential(key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
    """Draws of Exp(1), never 0: the log of a gap must be finite."""
    uniform = jax.random.uniform(key, shape)
    return -jnp.log1p(-(uniform + jnp.finfo(uniform.dtype).eps / 2))  # the middles of the steps in which they come


def _present(events: Events) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gaps, marks and mask [L], with 0 for what absent events hold."""
    mask = whole_mask(events)
    return jnp.where(mask, events.gap, 0), jnp.where(mask, events.mark, 0), mask


def _if(condition: jax.Array, one: State, other: State) -> State:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
