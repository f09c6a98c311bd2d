"""Transformer Hawkes Process: every event attends to all before it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from kvq_jax.domains import Count, Depth, Part
from kvq_jax.models.event_processes.base import Encoded, EventProcess, absent, clock
from kvq_jax.models.event_processes.embedding import MarkEmbedding
from kvq_jax.models.event_processes.events import Events
from kvq_jax.models.event_processes.heads import IntensityHead, MixtureHead
from kvq_jax.names import choose
from kvq_jax.nn import Op, TransformerLayer
from kvq_jax.nn.block import Block
from kvq_jax.nn.mlp import parameter
from kvq_jax.nn.positions import sinusoids
from kvq_jax.nn.waiting_times import SoftplusIntensity


class HawkesEncoder(Block):
    """Transformer layers, before each of which the encoding of time is added again (Zuo et al. 2020, released code)."""

    num_layers: Depth
    hidden: Count
    num_heads: Count
    head_features: Count
    op: Op
    dropout: Part

    @nn.compact
    def __call__(self, x: Array, times: Array, *, mask: Array, deterministic: bool = True, position=None) -> Array:
        """x and times [..., N, features], mask [..., N] or [..., N, N] -> [..., N, features].

        With `position` keys and values are cached: see kvq_jax.nn.MultiHead.
        """
        for index in range(self.num_layers):
            layer = TransformerLayer(
                self.hidden,
                num_heads=self.num_heads,
                head_features=self.head_features,
                op=self.op,
                dropout=self.dropout,
                epsilon=1e-6,
                activation=functools.partial(nn.gelu, approximate=False),
                kernel_init="glorot_uniform",
                name=f"layer_{index}",
            )
            x = layer(x + times, mask=mask, deterministic=deterministic, position=position)
        return x


class THPState(NamedTuple):
    """Keys and values of the start and of the last `capacity` events, and what the last of them came to."""

    cache: Any  # of each layer, [..., 1 + capacity, num_heads head_features]
    there: Array  # bool [..., 1 + capacity]
    used: Array  # int32 [], events absorbed so far
    hidden: Array  # [..., features]
    elapsed: Array  # [...]


class THPMixture(EventProcess):
    """Transformer Hawkes Process with a log-normal mixture: 'THP' in the tables of Feng et al. 2023 (CMANP).

    The encoder of Zuo et al. 2020 (arXiv 2002.09291) and its released code: embeddings of marks, sinusoids of absolute
    time added before every layer, layers with post-norm and GELU, sizes as the code's defaults. As there an event sees
    itself and those before it. Time is in units of time_scale. Five things differ. No LSTM follows the layers, which is
    an option of the code, on by default. Projections have biases. Embeddings start with variance 1 / features, and
    feed-forward layers by Glorot's law with biases of zero, where the code has PyTorch's defaults. Dropout is on the
    residual branches alone, and there inside the feed-forward and on the weights of attention too. A learnt element at
    time 0, which the code lacks, stands before the first event: the empty history.

    `op` is any operator of KVQ space; each query sees keys of its own, so that least squares solves one system for each
    event. A state caches `capacity` events: memory and time of an update grow with it. In a full cache the oldest event
    is forgotten for the newest: from then on the model attends to a window, and no longer does what one pass over the
    whole sequence does. An absent event takes a place in it too.
    """

    num_layers: Depth = 4
    features: Count = 64
    num_heads: Count = 4
    head_features: Count = 16
    hidden: Count = 128
    dropout: Part = 0.1  # of the layers' residual branches
    op: Op = "softmax"
    use_gap: bool = False  # whether the embedding of an event also holds its log gap
    components: Count = 16  # of the mixture; THP has none

    def setup(self):
        self.start = parameter(self, "start", nn.initializers.normal(1.0), (self.features,))
        self.embed = MarkEmbedding(self.num_marks, self.features, self.use_gap)
        sizes = (self.num_layers, self.hidden, self.num_heads, self.head_features, self.op, self.dropout)
        self.encoder = HawkesEncoder(*sizes)
        self.head = self.make_head()

    @nn.nowrap
    def make_head(self) -> nn.Module:
        """What makes a forecast of an encoding: here a mixture of log-normals."""
        return MixtureHead(self.num_marks, self.components, self.log_mean, self.log_std)

    def encode(self, seen: Events, key: Array | None) -> Encoded:
        """The histories of 0, 1, ..., L events; with a key, under dropout."""
        *batch, length = seen.gap.shape
        events = self.embed(seen.mark, self.log_gap(seen.gap))
        x = jnp.concatenate([jnp.broadcast_to(self.start, (*batch, 1, self.features)).astype(events.dtype), events], -2)
        elapsed = clock(jnp.pad(seen.gap, [(0, 0)] * len(batch) + [(1, 0)]), self.time_scale)
        there = jnp.concatenate([jnp.ones((*batch, 1), bool), seen.mask], -1)
        mask = there[..., None, :] & jnp.tril(jnp.ones((length + 1, length + 1), bool))
        times = sinusoids(elapsed, self.features)
        if key is None or not self.dropout:
            return Encoded(self.encoder(x, times, mask=mask), elapsed)
        # The key comes as an argument, not as a random stream of `apply`.
        alone = self.encoder.clone(parent=None, name=None, **self.encoder.dtypes)
        options = dict(mask=mask, deterministic=False, rngs={"dropout": key})
        return Encoded(alone.apply(self.encoder.variables, x, times, **options), elapsed)

    def init_state(self, batch: tuple[int, ...] = (), capacity: int = 1024) -> THPState:
        """The state of no event, with room for `capacity` events. Raises ValueError for room for none."""
        if capacity < 1:
            raise ValueError(f"the state of a THP has room for 1 event at least, not {capacity}")
        there = jnp.zeros((*batch, 1 + capacity), bool).at[..., 0].set(True)
        elapsed = jnp.zeros(batch, jnp.promote_types(self.start.dtype, jnp.float32))
        x = jnp.broadcast_to(self.start, (*batch, self.features))
        hidden, cache = self._cached({}, x, elapsed, there, 0)
        return THPState(cache, there, jnp.zeros((), jnp.int32), hidden, elapsed)

    def update(self, state: THPState, gap: Array, mark: Array, mask: Array | None = None) -> THPState:
        """See EventProcess; one query to the cache."""
        seen = absent(Events(gap, mark, mask, jnp.zeros_like(gap)))
        elapsed = clock(seen.gap[..., None], self.time_scale, state.elapsed)[..., 0]
        position = 1 + state.used % (state.there.shape[-1] - 1)
        there = state.there.at[..., position].set(seen.mask)
        x = self.embed(seen.mark, self.log_gap(seen.gap))
        hidden, cache = self._cached(state.cache, x, elapsed, there, position)
        hidden = jnp.where(seen.mask[..., None], hidden, state.hidden)
        return THPState(cache, there, state.used + 1, hidden, elapsed)

    def update_many(self, state: THPState, events: Events) -> THPState:
        """See EventProcess: one event after the other."""
        seen = absent(events)
        step = lambda model, state, event: (model.update(state, *event), None)
        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        events = tuple(jnp.moveaxis(array, -1, 0) for array in (seen.gap, seen.mark, seen.mask))
        return scan(self, state, events)[0]

    def recall(self, state: THPState) -> Encoded:
        return Encoded(state.hidden, state.elapsed)

    def _cached(self, cache: Any, x: Array, elapsed: Array, there: Array, position: Array | int) -> tuple[Array, Any]:
        """The encoding of one element [..., features] that sees all that is there, and the cache with it."""
        alone = self.encoder.clone(parent=None, name=None, **self.encoder.dtypes)
        variables = self.encoder.variables | ({"cache": cache} if cache else {})
        times = sinusoids(elapsed, self.features)[..., None, :]
        hidden, new = alone.apply(variables, x[..., None, :], times, mask=there, position=position, mutable="cache")
        return hidden[..., 0, :], new["cache"]


class THP(THPMixture):
    """Transformer Hawkes Process (Zuo et al. 2020, arXiv 2002.09291): intensities that are softplus functions of lines.

    by_mark=True is the paper's: the mark's law is lambda_k / lambda. False: one intensity for all marks, and a softmax.

    `compensator`, a name of COMPENSATORS, says how likelihoods integrate it: 'monte_carlo' and 'trapezoid' are the
    paper's; 'exact' is ours, a closed form that costs less than either. Forecasts are exact always. The released code
    trains on squared errors of the time and smoothed labels of the mark too; this is the likelihood alone.
    """

    by_mark: bool = True  # whether each mark has its intensity
    compensator: str = "exact"  # a name of COMPENSATORS
    points: Count = 100  # of the Monte Carlo estimate or the trapezoid rule, for each gap

    @nn.nowrap
    def make_head(self) -> nn.Module:
        """See THPMixture: here an intensity."""
        choose(COMPENSATORS, self.compensator, "compensator")
        return IntensityHead(self.num_marks, self.time_scale, self.by_mark)

    def log_prob(self, time: SoftplusIntensity, gap: Array, key: Array | None) -> Array:
        return time.log_intensity(gap) + self.log_survival(time, gap, key)

    def log_survival(self, time: SoftplusIntensity, gap: Array, key: Array | None) -> Array:
        return -COMPENSATORS[self.compensator](time, gap, key, self.points)


def _monte_carlo(time: SoftplusIntensity, gap: Array, key: Array | None, points: int) -> Array:
    if key is None:
        raise ValueError("compensator='monte_carlo' draws random numbers: give a key, or compensator='exact'")
    shares = jax.random.uniform(key, (points, *gap.shape), gap.dtype)
    return gap * jnp.mean(_intensity(time, gap * shares), 0)


def _trapezoid(time: SoftplusIntensity, gap: Array, key: Array | None, points: int) -> Array:
    if points < 2:
        raise ValueError(f"the trapezoid rule takes 2 points at least, not {points}")
    shares = jnp.linspace(0, 1, points, dtype=gap.dtype).reshape(points, *[1] * gap.ndim)
    at_points = _intensity(time, gap * shares)
    return gap * (jnp.sum(at_points, 0) - (at_points[0] + at_points[-1]) / 2) / (points - 1)


def _intensity(time: SoftplusIntensity, gaps: Array) -> Array:
    """The intensity at gaps [T, ...], in the memory of one of T where no gradient is asked for."""
    return lax.map(jax.checkpoint(lambda gap: jnp.exp(time.log_intensity(gap))), gaps)


# Name -> (law, gap [...], key, number of points) -> the integral of the intensity from 0 to the gap.
COMPENSATORS: dict[str, Callable[..., Array]] = {
    "monte_carlo": _monte_carlo,
    "trapezoid": _trapezoid,
    "exact": lambda time, gap, key, points: time.compensator(gap),
}
