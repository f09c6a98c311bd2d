"""A recurrent network over events, with a mixture of log-normals: what most later models are compared with."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.domains import Count
from kvq_jax.models.event_processes.base import Encoded, EventProcess, absent, at, clock
from kvq_jax.models.event_processes.events import Events, number
from kvq_jax.models.event_processes.heads import MixtureHead
from kvq_jax.nn.mlp import parameter


class GRUState(NamedTuple):
    """What a GRUProcess remembers of any number of events."""

    hidden: Array  # [..., D], of the GRU
    elapsed: Array  # [...]


class GRUProcess(EventProcess):
    """A GRU with a log-normal mixture (Shchur et al. 2020, arXiv 1909.12127, Section 3 and its released code).

    An event comes in as its standardised log gap beside an embedding of its mark. The GRU starts at a learnt context,
    which is that of no event; in the released code that context is a parameter of its own and the GRU starts at zero.
    """

    features: Count = 64
    mark_features: Count = 32  # width of the embedding of a mark
    components: Count = 16  # of the mixture; the released code's experiments have 64, its class 16

    def setup(self):
        self.start = parameter(self, "start", nn.initializers.normal(0.1), (self.features,))
        self.marks = nn.Embed(self.num_marks, self.mark_features, **self.for_flax)
        self.cell = nn.GRUCell(self.features, **self.for_flax)
        self.head = MixtureHead(self.num_marks, self.components, self.log_mean, self.log_std)

    def encode(self, seen: Events, key: Array | None) -> Encoded:
        return self._after(self.init_state(seen.gap.shape[:-1]), seen)

    def init_state(self, batch: tuple[int, ...] = ()) -> GRUState:
        """The state of no event: [*batch, features] and [*batch]."""
        dtype = jnp.promote_types(self.start.dtype, jnp.float32)
        return GRUState(jnp.broadcast_to(self.start, (*batch, self.features)), jnp.zeros(batch, dtype))

    def update_many(self, state: GRUState, events: Events) -> GRUState:
        """See EventProcess."""
        after = GRUState(*at(self._after(state, absent(events)), number(events)))
        return jax.tree.map(lambda new, old: new.astype(old.dtype), after, state)

    def recall(self, state: GRUState) -> Encoded:
        return Encoded(*state)

    def _after(self, state: GRUState, seen: Events) -> Encoded:
        """The histories after 0, 1, ..., L more events: absent ones come last, where nobody looks."""
        events = jnp.concatenate([self.log_gap(seen.gap)[..., None], self.marks(seen.mark)], -1)
        dtype = self.dtypes["dtype"] or jnp.result_type(events, state.hidden)
        start, events = state.hidden.astype(dtype), events.astype(dtype)
        scan = nn.scan(lambda cell, *step: cell(*step), variable_broadcast="params", split_rngs={"params": False})
        _, hidden = scan(self.cell, start, jnp.moveaxis(events, -2, 0))
        hidden = jnp.concatenate([start[..., None, :], jnp.moveaxis(hidden, 0, -2)], -2)
        times = clock(seen.gap, self.time_scale, state.elapsed)
        return Encoded(hidden, jnp.concatenate([state.elapsed[..., None], times], -1))
