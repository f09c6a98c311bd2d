"""Constant Memory Hawkes Processes: what is known of the past has one size, however many events there were."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict
from jax import Array

from kvq_jax.domains import Count, Depth
from kvq_jax.models.event_processes.base import Encoded, EventProcess, absent, clock
from kvq_jax.models.event_processes.embedding import MarkEmbedding
from kvq_jax.models.event_processes.events import Events, padded
from kvq_jax.models.event_processes.heads import MixtureHead
from kvq_jax.nn import CMAB, Linear, Op
from kvq_jax.nn.mlp import parameter
from kvq_jax.nn.positions import sinusoids


class CMHPState(NamedTuple):
    """What CMHP remembers of any number of events."""

    streams: tuple  # of each block, the state of its stream, [..., num_heads, *]
    elapsed: Array  # [...]


class CMHP(EventProcess):
    """Constant Memory Hawkes Process (Feng et al. 2023, CMANP, arXiv 2305.14567, Sections 4.2 and C.1).

    The Transformer Hawkes Process with CMABs for its Transformer: the latents of the last block are flattened and
    mapped to a log-normal mixture. An event is the embedding of its mark plus the sinusoids of its time. The first
    attention of each block keeps a state of constant size, so that an event is absorbed in constant time. Training
    computes the states after all events of a sequence at once, by an associative scan, and reads each.

    The paper gives no code, number of blocks, or widths; latents and widths here are those of its neural process, the
    number of blocks and the linear map behind the latents are ours. A read costs as if the latents were a set to be
    encoded, for every event: few latents make training quick.

    Training in chunks of `chunk` events keeps one state for each chunk and makes the others anew for the gradient.
    """

    num_layers: Depth = 2  # blocks
    features: Count = 64
    num_latents: Count = 128  # L_I
    num_block_latents: Count = 128  # L_B, in each block
    num_heads: Count = 4
    head_features: Count = 16
    hidden: Count = 128  # of the GEGLUs
    op: Op = "softmax"
    cross_op: Op | None = None  # of the attention over events, which streams; None: op
    use_gap: bool = False  # whether the embedding of an event also holds its log gap
    components: Count = 16  # of the mixture
    chunk: Count | None = None  # events whose states training holds at once; None: all

    def setup(self):
        self.embed = MarkEmbedding(self.num_marks, self.features, self.use_gap)
        self.latents = parameter(self, "latents", nn.initializers.normal(1.0), (self.num_latents, self.features))
        fields = ("features", "num_heads", "head_features", "hidden", "op", "cross_op")
        sizes = {name: getattr(self, name) for name in fields}
        self.blocks = [CMAB(self.num_block_latents, **sizes) for _ in range(self.num_layers)]
        self.flat = Linear(self.features)
        self.head = MixtureHead(self.num_marks, self.components, self.log_mean, self.log_std)

    def encode(self, seen: Events, key: Array | None) -> Encoded:
        """The histories of 0, 1, ..., L events. `key` is not used."""
        *batch, length = seen.gap.shape
        state, size = self.init_state(tuple(batch)), min(self.chunk or length, length)
        if size == length:
            _, after = self._prefixes(state, seen)
        else:
            # Inside a scan nothing else can share the computation, so the barrier against that is not needed.
            chunk = nn.remat(lambda model, *chunk: model._prefixes(*chunk), prevent_cse=False)
            scan = nn.scan(chunk, variable_broadcast="params", split_rngs={"params": False})
            gap, mark, mask, rest = padded(seen, length + -length % size)
            gap, mark, mask = (jnp.moveaxis(x.reshape(*batch, -1, size), -2, 0) for x in (gap, mark, mask))
            _, after = scan(self, state, Events(gap, mark, mask, jnp.broadcast_to(rest, (len(gap), *batch))))
            hidden = jnp.moveaxis(after.hidden, 0, -3).reshape(*batch, -1, self.features)
            after = Encoded(hidden, jnp.moveaxis(after.elapsed, 0, -2).reshape(*batch, -1))
        start = self.recall(state)
        hidden = jnp.concatenate([start.hidden[..., None, :], after.hidden[..., :length, :]], -2)
        return Encoded(hidden, jnp.concatenate([start.elapsed[..., None], after.elapsed[..., :length]], -1))

    def init_state(self, batch: tuple[int, ...] = ()) -> CMHPState:
        """The state of no event. Raises ValueError if the op over events has no state of constant size."""
        dtype = jnp.promote_types(self.latents.dtype, jnp.float32)
        return CMHPState(tuple(block.init_state(batch) for block in self.blocks), jnp.zeros(batch, dtype))

    def update_many(self, state: CMHPState, events: Events) -> CMHPState:
        """See EventProcess: a chunk is projected and scored at once, and nothing is read."""
        seen = absent(events)
        context, elapsed = self._embedded(state, seen)
        blocks = zip(self.blocks, state.streams, strict=True)
        streams = tuple(block.update(part, context, mask=seen.mask) for block, part in blocks)
        return CMHPState(streams, elapsed[..., -1].astype(state.elapsed.dtype))

    def recall(self, state: CMHPState) -> Encoded:
        return Encoded(self._read(state.streams), state.elapsed)

    def _prefixes(self, state: CMHPState, seen: Events) -> tuple[CMHPState, Encoded]:
        """The state after all events of a chunk, and the histories after each, [..., L]."""
        context, elapsed = self._embedded(state, seen)
        blocks = zip(self.blocks, state.streams, strict=True)
        streams = tuple(block.prefixes(part, context, mask=seen.mask) for block, part in blocks)
        last = jax.tree.map(lambda states, part: states[-1].astype(part.dtype), streams, state.streams)
        last = CMHPState(last, elapsed[..., -1].astype(state.elapsed.dtype))
        return last, Encoded(jnp.moveaxis(self._read(streams), 0, -2), elapsed)

    def _embedded(self, state: CMHPState, seen: Events) -> tuple[Array, Array]:
        """Events as vectors [..., L, features], and their times [..., L]."""
        elapsed = clock(seen.gap, self.time_scale, state.elapsed)
        return self.embed(seen.mark, self.log_gap(seen.gap)) + sinusoids(elapsed, self.features), elapsed

    def _read(self, streams: tuple) -> Array:
        """The flattened latents of the last block, as [..., features]."""
        latents = self.latents
        for block, part in zip(self.blocks, streams, strict=True):
            latents = block.read(part, latents)
        return self.flat(latents.reshape(*latents.shape[:-2], -1))


class IntentionHawkes(CMHP):
    """CMHP whose blocks read the events by Intention that forgets: streaming recursive least squares. Ours.

    An event that n others have followed counts forgetting^n. Every read solves a system of head_features equations for
    each head and block, so that there is one block of narrow heads; latents are few, as in training a read follows
    every event.
    """

    num_layers: Depth = 1
    features: Count = 32
    num_latents: Count = 8
    num_block_latents: Count = 8
    head_features: Count = 8
    hidden: Count = 64
    cross_op: Op | None = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus", forgetting=0.99)
    use_gap: bool = True
