"""What CNP, CANP, NP, ANP, BNP and BANP share: two encoders, a decoder, and their fields.

    r = encoder(context, x*)     at every target: pooling, or cross-attention in the models of `Attentive`
    s = pooling(context)         one vector: a second representation, or the parameters of a latent z
    mean, std = decoder(r, s or z, x*)

Class defaults are the published values for one-dimensional GPs. Source: the released code of Lee et al. 2020 (arXiv
2008.02956), which the code of TNP, LBANP and CMANP contains unchanged.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from kvq_jax.domains import Count, Depth, Natural, NotNegative
from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.base import NeuralProcess
from kvq_jax.models.points import Points, join, whole_mask
from kvq_jax.models.torch_names import Renaming, mlp_names
from kvq_jax.nn import Op
from kvq_jax.nn.cache import put
from kvq_jax.nn.np_encoders import CrossAttentionEncoder, Decoder, PoolingEncoder

MAB_PARTS = dict(fc_q="query", fc_k="key", fc_v="value", fc_out="rff/layer_0", ln1="norm_heads", ln2="norm_rff")
PARTS = (
    *mlp_names("net_(pre|post)", r"\1"),
    *mlp_names(r"net_pre\.0", "pre"),  # before self-attention, which is net_pre.2
    *mlp_names("net_v", "value"),
    *mlp_names("net_qk", "key"),
    *((rf"(?:net_pre\.2|self_attn)\.{theirs}", f"attention/{ours}") for theirs, ours in MAB_PARTS.items()),
    *((rf"attn\.{theirs}", f"cross_attention/{ours}") for theirs, ours in MAB_PARTS.items()),
    ("fc", "first"),
    ("fc_ctx", "extra"),
    *mlp_names("mlp", "rest", first=1),  # a ReLU comes first
)


def renamings(**modules: str) -> tuple[Renaming, ...]:
    """The renamings of the published encoders and decoders, theirs='ours'; see kvq_jax.models.torch_names."""
    return tuple((rf"{theirs}\.{part}", f"{ours}/{path}") for theirs, ours in modules.items() for part, path in PARTS)


class EncoderDecoder(NeuralProcess):
    """The parts and fields of all six models; depths count linear layers.

    Raises ValueError if a name is unknown, or a depth leaves no layer.
    """

    hidden: Count = 128
    pre_depth: Depth = 4  # layers of the pooling before the mean
    post_depth: Depth = 2  # and after it
    decoder_depth: Depth = 3
    std_map: str = "softplus"  # a name of kvq_jax.models.neural_processes.predictive.STD_MAPS
    std_floor: NotNegative = 0.1  # 0.1 caps the log-likelihood of an output at 1.38
    kernel_init: str = "fan_in_uniform"
    bias_init: str = "fan_in_uniform"

    def setup(self):
        self.encoder, self.pooling = self._encoder(), self._pool(self._summary_features())
        self.decoder = Decoder(2 * self.dim_y, self.hidden, self.decoder_depth, **self.inits)

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """The loss over the N + M points of context and target, [...]; see `loss_of_points`."""
        return self.loss_of_points(context, join(context, target), key=key)

    def loss_of_points(self, context: Points, points: Points, *, key: jax.Array | None = None) -> jax.Array:
        """The loss [...] over all points of a task, its context among them, as published."""
        raise NotImplementedError

    def encode(self, context: Points, target_x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Context [..., N] -> r [..., M or 1, hidden] at target_x [..., M, dx], and s [..., 1, *]."""
        return tuple(path(context.x, context.y, target_x, mask=context.mask) for path in self._paths())

    def remember(self, context: Points, *, key: jax.Array | None = None) -> tuple:
        """What the encoders keep of a context."""
        return self._kept(context)

    def read(self, memory: tuple, target_x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """What `encode` gives for all context in the memory."""
        return tuple(path.read(part, target_x) for path, part in zip(self._paths(), memory))

    def decode(
        self, representations: Sequence[jax.Array], target_x: jax.Array, extra: Sequence[jax.Array] = ()
    ) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation [..., M, dy]. Representations may have leading dimensions of samples."""
        return predictive.moments(self.decoder(representations, target_x, extra), self.std_map, self.std_floor)

    def _kept(self, context: Points) -> tuple:
        return tuple(path.remember(context.x, context.y, mask=context.mask) for path in self._paths())

    def _paths(self) -> tuple:
        return self.encoder, self.pooling

    def _encoder(self):
        return self._pool(self.hidden)

    def _summary_features(self) -> int:
        """The width of s."""
        return self.hidden

    def _pool(self, features: int, **fields) -> PoolingEncoder:
        return PoolingEncoder(features, self.hidden, self.pre_depth, self.post_depth, **fields, **self.inits)


class Cache(NamedTuple):
    """A context that grows, and places for more of it."""

    paths: tuple  # of each encoder its own
    there: jax.Array  # bool [..., N], which places are filled


class Streamed(EncoderDecoder):
    """A model that sees the context through its encoders alone: its state and its cache are theirs.

    Raises ValueError if an encoder has no state, or no cache: see kvq_jax.nn.np_encoders.
    """

    def init_state(self, batch: tuple[int, ...] = ()) -> tuple:
        """The state of no context, with leading dimensions `batch`: of each encoder its own."""
        return tuple(path.init_state(batch) for path in self._paths())

    def update(self, state: tuple, context: Points) -> tuple:
        """The state after more context."""
        x, y, mask = context
        return tuple(path.update(part, x, y, mask=mask) for path, part in zip(self._paths(), state))

    def merge(self, state: tuple, other: tuple) -> tuple:
        """The state of both contexts."""
        return tuple(path.merge(*parts) for path, *parts in zip(self._paths(), state, other))

    def finish(self, state: tuple) -> tuple:
        """What `query` needs of a state."""
        return tuple(path.finish(part) for path, part in zip(self._paths(), state))

    def init_cache(self, batch: tuple[int, ...], capacity: int) -> Cache:
        """No context, with leading dimensions `batch` and room for `capacity` points."""
        paths = tuple(path.init_cache(batch, capacity) for path in self._paths())
        return Cache(paths, jnp.zeros((*batch, capacity), bool))

    def extend(self, cache: Cache, context: Points, position: jax.Array | int) -> Cache:
        """The cache after more context is put into the places position, position + 1, ..., which must be empty.

        Raises ValueError if there is no room for it; a position that is an array is not checked.
        """
        x, y, _ = context
        new = jnp.broadcast_to(whole_mask(context), x.shape[:-1])
        there = put(cache.there, new, position, -1)
        parts = zip(self._paths(), cache.paths, strict=True)
        return Cache(tuple(path.extend(part, x, y, position, there) for path, part in parts), there)

    def widen(self, cache: Cache, capacity: int) -> Cache:
        """The cache with room for `capacity` points. Raises ValueError if they are fewer than it had room for."""
        if capacity < cache.there.shape[-1]:
            raise ValueError(f"a cache with room for {cache.there.shape[-1]} points cannot be narrowed to {capacity}")
        wider = self.init_cache(cache.there.shape[:-1], capacity)
        place = lambda room, held: lax.dynamic_update_slice(room.astype(held.dtype), held, (0,) * held.ndim)
        return jax.tree.map(place, wider, cache)

    def finish_cache(self, cache: Cache) -> tuple:
        """What `query` needs of a cache."""
        parts = zip(self._paths(), cache.paths, strict=True)
        return tuple(path.finish_cache(part, cache.there) for path, part in parts)


class Attentive(EncoderDecoder):
    """Cross-attention from targets to context for r, and self-attention over the context, also before the pooling.

    `op` is the operator of the cross-attention. With op='intention' and self_attention=False this is the Intention
    neural process: a regression in feature space for each head. It answers any query from K'K and K'V, so that the
    context may come in parts.
    """

    num_heads: Natural = 8  # 0: the op alone, without projections; see kvq_jax.nn.np_encoders
    value_depth: Depth = 4  # layers for the values; self-attention replaces two of them, here and in pre_depth
    key_depth: Depth = 2  # layers for keys and queries, which share them; 0: these are x
    op: Op = "softmax"
    scaling: str = "full"  # a name of kvq_jax.nn.SCALINGS; published: by sqrt(hidden), not by the width of a head
    self_attention: bool | int = True  # False: as in DeepMind's notebook; or the number of layers

    def attention_weights(self, context: Points, target_x: jax.Array) -> jax.Array:
        """What each point of the context counts for in each head of the cross-attention, [..., H, M, N]."""
        return self.encoder.weights(context.x, target_x, mask=context.mask)

    def _encoder(self):
        depths, attention = (self.value_depth, self.key_depth), (self.num_heads, self.op, self.scaling)
        return CrossAttentionEncoder(self.hidden, *depths, *attention, self.self_attention, **self.inits)

    def _pool(self, features: int) -> PoolingEncoder:
        return super()._pool(features, self_attention=self.self_attention, num_heads=self.num_heads)
