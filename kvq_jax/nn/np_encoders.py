"""Encoders and decoder of CNP, CANP, NP, ANP, BNP and BANP, as in the published code.

An encoder turns pairs (x, y) into a representation for queries, in one call or in parts, in any order:

    representation = encoder(x, y, query, mask=mask)    # [..., M, features]; of pooling, [..., 1, features]
    representation = encoder.read(encoder.remember(x, y, mask=mask), query)    # the same
    state = encoder.update(encoder.init_state(batch), x, y, mask=mask)
    representation = encoder.read(encoder.finish(encoder.merge(state, other_state)), query)

through `apply(variables, ..., method="update")`. The state has a constant size if the context does not attend to itself
and, for cross-attention, if the op's state serves any query: Intention, Informer, linear attention, the mean.

A context that does attend to itself, in one layer, can grow in a cache, where a new point costs O(N); `there` [..., N]
says which places are filled, the new ones among them:

    cache = encoder.extend(encoder.init_cache(batch, N), x, y, position, there)
    representation = encoder.read(encoder.finish_cache(cache, there), query)

Source: the released code of Lee et al. 2020 (bootstrapping neural processes, arXiv 2008.02956), from which TNP, LBANP
and CMANP take these models unchanged. All of its attention is the MAB with layer norms and without W_o, `ATTENTION`.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from kvq_jax.nn import growing
from kvq_jax.nn.block import Block
from kvq_jax.nn.cache import put
from kvq_jax.nn.growing import GrowingSet
from kvq_jax.nn.heads import mask_of_heads
from kvq_jax.nn.mixer import Op
from kvq_jax.nn.mlp import MLP, BiasInit, KernelInit, Linear
from kvq_jax.nn.pooling import set_mean
from kvq_jax.nn.set_transformer import MAB
from kvq_jax.nn.unprojected import Unprojected
from kvq_jax.ops.operators import affine_form
from kvq_jax.ops.similarity import mix
from kvq_jax.ops.streaming import uniform_stream

# o = LN(W_q x + heads), out = LN(o + relu(W o + b)): scores over sqrt(dim), projections without bias.
ATTENTION = dict(residual="code", layer_norm=True, use_output=False, use_bias=False)
SELF_ATTENTION_DEPTH = 2  # self-attention, of any number of layers, takes the place of these of the MLP before it


class PoolingEncoder(Block):
    """post(mean_i pre(x_i, y_i)), the same for every query; with self-attention, pre = MAB(relu(MLP), relu(MLP)).

    `pre_depth` counts linear layers, of which self-attention takes the place of two; no context leaves post(0).

    Raises ValueError if a depth leaves no layer, and for a state with self-attention, too.
    """

    features: int = 128
    hidden: int = 128
    pre_depth: int = 4
    post_depth: int = 2
    self_attention: bool | int = False  # or the number of its layers
    num_heads: int = 8
    kernel_init: KernelInit = "fan_in_uniform"
    bias_init: BiasInit = "fan_in_uniform"

    def setup(self):
        mlp = functools.partial(MLP, **self.inits)
        widths = _widths(self.hidden, self.pre_depth, self.self_attention, "pre_depth")
        self.pre = mlp(widths, activate_final=self.self_attention)
        if self.self_attention:
            self.attention, self.further = _self_attention(self)
        self.post = mlp((*_widths(self.hidden, self.post_depth, False, "post_depth")[1:], self.features))

    def __call__(self, x: Array, y: Array, query: Array | None = None, *, mask: Array | None = None) -> Array:
        """x [..., N, dx], y [..., N, dy], mask [..., N], True = take part -> [..., 1, features]."""
        rows = self.pre(x, y)
        mask = _mask_of(rows, mask)
        return self.post(set_mean(_among(self, rows, mask), mask))

    def resampled(self, x: Array, y: Array, query: Array, indices: Array, *, mask: Array | None = None) -> Array:
        """`__call__` on the points at indices [K, ..., N]: [K, ..., 1, features]. Each point passes the MLP once.

        mask [K, ..., N] is that of the places which the points fill.
        """
        rows = _among_resampled(self, self.pre(x, y), indices, mask)
        fills = jnp.ones(indices.shape, rows.dtype) if mask is None else mask.astype(rows.dtype)
        add_up = lambda own, fills: jnp.zeros(rows.shape[-2], rows.dtype).at[own].add(fills)
        counts = jnp.vectorize(add_up, signature="(n),(n)->(m)")(
            indices, fills
        )  # memory of O(N): a sum of one-hots is N x N
        rows = jnp.where((counts > 0).any(0)[..., None], rows, 0)  # 0 times NaN is NaN
        mean = mix((counts / jnp.maximum(counts.sum(-1, keepdims=True), 1))[..., None, :], rows)
        return self.post(mean)

    def remember(self, x: Array, y: Array, *, mask: Array | None = None) -> Array:
        """What `read` needs of a context: its representation."""
        return self(x, y, mask=mask)

    def init_state(self, batch: tuple[int, ...] = ()) -> Any:
        """The state of no context, with leading dimensions `batch`."""
        _refuse(self.self_attention)
        return uniform_stream().init(1, self.hidden, batch=batch)

    def update(self, state: Any, x: Array, y: Array, *, mask: Array | None = None) -> Any:
        """The state after more context."""
        _refuse(self.self_attention)
        rows = self.pre(x, y)
        return uniform_stream().update(state, rows, rows, mask)

    def merge(self, state: Any, other: Any) -> Any:
        """The state of both contexts."""
        return uniform_stream().merge(state, other)

    def finish(self, state: Any) -> Array:
        """The representation of all context in the state, [..., 1, features]."""
        return self.post(uniform_stream().finish(state))

    def init_cache(self, batch: tuple[int, ...], capacity: int) -> Any:
        """No context, and room for `capacity` points; without self-attention it is the state."""
        return _empty(self, batch, capacity) if self.self_attention else self.init_state(batch)

    def extend(self, cache: Any, x: Array, y: Array, position: Array | int, there: Array) -> Any:
        """The cache after more context, x [..., n, dx] and y [..., n, dy]."""
        if self.self_attention:
            return growing.extend(self.attention, cache, self.pre(x, y), position, there)
        return self.update(cache, x, y, mask=lax.dynamic_slice_in_dim(there, position, x.shape[-2], -1))

    def finish_cache(self, cache: Any, there: Array) -> Array:
        """The representation of all context in the cache, [..., 1, features]."""
        if not self.self_attention:
            return self.finish(cache)
        return self.post(set_mean(growing.read(self.attention, cache), there))

    def read(self, memory: Array, query: Array | None = None) -> Array:
        """What `__call__` gives for the context in the memory, [..., 1, features]."""
        return memory


class Projected(NamedTuple):
    """A context as cross-attention sees it, for each of its heads."""

    key: Array  # [..., H, N, d]
    value: Array  # [..., H, N, d]
    mask: Array | None  # [..., 1, N], or [N]


class CrossAttentionEncoder(Block):
    """MAB(e(query), e(x), v(x, y)): keys and queries from one MLP e, values from an MLP v followed by self-attention.

    `value_depth` counts linear layers, of which self-attention takes the place of two. `op` is that of the
    cross-attention, and `scaling` the factor on its queries. No context leaves what comes from the queries. Without
    heads, num_heads=0, the op stands alone, in place of the MAB; without key layers, keys and queries are x itself.

    Raises ValueError if num_heads does not divide hidden or value_depth leaves no layer, and for a state with
    self-attention or of an op whose state does not serve any query, too.
    """

    hidden: int = 128
    value_depth: int = 4
    key_depth: int = 2
    num_heads: int = 8
    op: Op = "softmax"
    scaling: str = "full"  # a name of kvq_jax.nn.SCALINGS
    self_attention: bool | int = True  # or the number of its layers
    kernel_init: KernelInit = "fan_in_uniform"
    bias_init: BiasInit = "fan_in_uniform"

    def setup(self):
        self.key = MLP((self.hidden,) * self.key_depth, **self.inits)
        self.value = MLP(_widths(self.hidden, self.value_depth, self.self_attention, "value_depth"), **self.inits)
        if self.self_attention:
            self.attention, self.further = _self_attention(self)
        fields = dict(scaling=self.scaling, **ATTENTION, **self.inits)
        with_heads = functools.partial(MAB, self.hidden, self.num_heads, self.op, **fields)
        self.cross_attention = with_heads() if self.num_heads else Unprojected(self.op, self.scaling)

    def __call__(self, x: Array, y: Array, query: Array, *, mask: Array | None = None) -> Array:
        """x [..., N, dx], y [..., N, dy], query [..., M, dx], mask [..., N], True = take part -> [..., M, hidden]."""
        return self.cross_attention(self.key(query), self.key(x), self._values(x, y, mask), mask=mask)

    def resampled(self, x: Array, y: Array, query: Array, indices: Array, *, mask: Array | None = None) -> Array:
        """`__call__` on the points at indices [K, ..., N]: [K, ..., M, hidden]. Each point passes the MLPs once.

        mask [K, ..., N] is that of the places which the points fill.
        """
        values = _among_resampled(self, self.value(x, y), indices, mask)
        return _attend_resampled(self.cross_attention, self.key(query), self.key(x), values, indices, mask)

    def weights(self, x: Array, query: Array, *, mask: Array | None = None) -> Array:
        """What each point counts for in each head, [..., H, M, N]: see `kvq_jax.ops.affine_form`.

        x [..., N, dx], query [..., M, dx], mask [..., N]. It is a map of attention for ops that are affine in values.
        """
        key, _ = self.cross_attention.pairs(self.key(x), jnp.zeros((*x.shape[:-1], self.hidden)))
        heads = self.cross_attention.heads(self.key(query))

        def attend(value):
            value = jnp.broadcast_to(value, (*key.shape[:-1], value.shape[-1]))
            return self.cross_attention.mixer(heads, key, value, mask=mask_of_heads(mask, x))

        return affine_form(attend, x.shape[-2])[0]

    def remember(self, x: Array, y: Array, *, mask: Array | None = None) -> Projected:
        """What `read` needs of a context: its keys and values, one row for each point."""
        pairs = self.cross_attention.pairs(self.key(x), self._values(x, y, mask))
        return Projected(*pairs, mask_of_heads(mask, x))

    def init_state(self, batch: tuple[int, ...] = ()) -> Any:
        """The state of no context, with leading dimensions `batch`. Raises ValueError where keys are x itself."""
        _refuse(self.self_attention)
        heads, width = self._heads_of_keys("state")
        return self.cross_attention.stream().init(width, width, batch=(*batch, heads))

    def update(self, state: Any, x: Array, y: Array, *, mask: Array | None = None) -> Any:
        """The state after more context."""
        _refuse(self.self_attention)
        key, value = self.cross_attention.pairs(self.key(x), self.value(x, y))
        return self.cross_attention.stream().update(state, key, value, mask_of_heads(mask, x))

    def merge(self, state: Any, other: Any) -> Any:
        """The state of both contexts."""
        return self.cross_attention.stream().merge(state, other)

    def finish(self, state: Any) -> Any:
        """What `read` needs of a state: that of the op's stream, for each head."""
        return self.cross_attention.stream().finish(state)

    def init_cache(self, batch: tuple[int, ...], capacity: int) -> tuple[Array, Any]:
        """No context, and room for `capacity` points. Raises ValueError where keys are x itself."""
        heads, width = self._heads_of_keys("cache")
        key = jnp.zeros((*batch, heads, capacity, width))
        if self.self_attention:
            return key, _empty(self, batch, capacity)
        return key, jnp.zeros((*batch, capacity, self.hidden))

    def extend(
        self, cache: tuple[Array, Any], x: Array, y: Array, position: Array | int, there: Array
    ) -> tuple[Array, Any]:
        """The cache after more context, x [..., n, dx] and y [..., n, dy]."""
        keys, values = cache
        keys = put(keys, self.cross_attention.keys(self.key(x)), position, keys.ndim - 2)
        rows = self.value(x, y)
        if self.self_attention:
            return keys, growing.extend(self.attention, values, rows, position, there)
        return keys, put(values, rows, position, values.ndim - 2)

    def finish_cache(self, cache: tuple[Array, Any], there: Array) -> Projected:
        """What `read` needs of a cache."""
        keys, values = cache
        rows = growing.read(self.attention, values) if self.self_attention else values
        return Projected(keys, self.cross_attention.values(rows), mask_of_heads(there, rows))

    def read(self, memory: Any, query: Array) -> Array:
        """What `__call__` gives at query [..., M, dx] for the context in the memory, [..., M, hidden].

        The memory is a `Projected`, or what `finish` gave.
        """
        rows = self.key(query)
        queries = self.cross_attention.heads(rows)
        if isinstance(memory, Projected):
            heads = self.cross_attention.mixer(queries, memory.key, memory.value, mask=memory.mask)
        else:
            heads = self.cross_attention.stream().answer(memory, queries)
        return self.cross_attention.output(rows, heads)

    def _heads_of_keys(self, what):
        """How many heads the keys have, and their width."""
        if not (self.num_heads or self.key_depth):
            raise ValueError(
                f"a {what} needs the width of its keys: with num_heads=0 and key_depth=0 they are x itself"
            )
        heads = self.num_heads or 1
        return heads, self.hidden // heads

    def _values(self, x, y, mask):
        values = self.value(x, y)
        return _among(self, values, _mask_of(values, mask))


class Decoder(Block):
    """MLP(representations, x) of `depth` linear layers; the first layer can take one more input.

    That is `extra`: it has a matrix of its own, without bias, and is added before the first ReLU. BNP and BANP give it
    their bootstrapped representation. Inputs broadcast: one vector for all points, or samples as leading dimensions.

    Raises ValueError if depth is below 2 too.
    """

    features: int
    hidden: int = 128
    depth: int = 3
    kernel_init: KernelInit = "fan_in_uniform"
    bias_init: BiasInit = "fan_in_uniform"

    @nn.compact
    def __call__(self, representations: Sequence[Array], x: Array, extra: Sequence[Array] = ()) -> Array:
        """representations [..., M or 1, *], x [..., M, dx], extra [..., M or 1, *] -> [..., M, features]."""
        if self.depth < 2:
            raise ValueError(f"a decoder has 2 layers at least, not {self.depth}")
        first = Linear(self.hidden, **self.inits, name="first")(*representations, x)
        if extra:
            first = first + Linear(self.hidden, use_bias=False, **self.inits, name="extra")(*extra)
        widths = (self.hidden,) * (self.depth - 2) + (self.features,)
        return MLP(widths, **self.inits, name="rest")(nn.relu(first))


def resample(rows: Array, indices: Array) -> Array:
    """Rows of [..., N, d] or [K, ..., N, d] at indices [K, ..., N], which broadcast: [K, ..., N, d]."""
    shape = jnp.broadcast_shapes(rows.shape[:-1], indices.shape)
    rows, indices = jnp.broadcast_to(rows, (*shape, rows.shape[-1])), jnp.broadcast_to(indices, shape)
    return jnp.take_along_axis(rows, indices[..., None], axis=-2)


def _self_attention(encoder: PoolingEncoder | CrossAttentionEncoder) -> tuple[MAB, list[MAB]]:
    """The first layer of an encoder's self-attention, and those after it."""
    if not encoder.num_heads:
        raise ValueError("self-attention has heads: num_heads=0 goes with self_attention=False")
    layer = functools.partial(MAB, encoder.hidden, encoder.num_heads, **ATTENTION, **encoder.inits)
    return layer(), [layer() for _ in range(encoder.self_attention - 1)]


def _layers(encoder: PoolingEncoder | CrossAttentionEncoder) -> tuple[MAB, ...]:
    return (encoder.attention, *encoder.further) if encoder.self_attention else ()


def _among(encoder: PoolingEncoder | CrossAttentionEncoder, rows: Array, mask: Array | None) -> Array:
    """The rows of a context [..., N, hidden] after the encoder's self-attention, if it has any."""
    for layer in _layers(encoder):
        rows = layer(rows, rows, mask=mask)
    return rows


def _among_resampled(
    encoder: PoolingEncoder | CrossAttentionEncoder, rows: Array, indices: Array, mask: Array | None
) -> Array:
    """`_among` the rows at indices [K, ..., N], for each row [..., N, hidden] once: [K, ..., N, hidden].

    Copies of a row stay equal, so what the resampled rows become are these at the same indices. Without self-attention
    the rows are returned as they are, [..., N, hidden].
    """
    for layer in _layers(encoder):
        rows = _attend_resampled(layer, rows, rows, rows, indices, mask)
    return rows


def _attend_resampled(
    attention: MAB | Unprojected, query: Array, keys: Array, values: Array, indices: Array, mask: Array | None
) -> Array:
    """attention(query, keys, values) for keys and values at indices [K, ..., N], which are projected before."""
    key, value = (resample(rows, indices[..., None, :]) for rows in attention.pairs(keys, values))
    mask = None if mask is None else mask[..., None, :]
    return attention.output(query, attention.mixer(attention.heads(query), key, value, mask=mask))


def _mask_of(rows: Array, mask: Array | None) -> Array | None:
    """The mask of points [..., N] for their rows [..., N, hidden], which may have further leading dimensions."""
    return None if mask is None else jnp.broadcast_to(mask, rows.shape[:-1])


def _widths(hidden: int, depth: int, self_attention: bool | int, name: str) -> tuple[int, ...]:
    """The widths of the MLP that self-attention may follow."""
    replaced = SELF_ATTENTION_DEPTH * bool(self_attention)
    if depth <= replaced:
        where = " before self-attention" * bool(self_attention)
        raise ValueError(f"{name}={depth} leaves no layer{where}: at least {replaced + 1}")
    return (hidden,) * (depth - replaced)


def _empty(encoder: PoolingEncoder | CrossAttentionEncoder, batch: tuple[int, ...], capacity: int) -> GrowingSet:
    if encoder.self_attention > 1:
        raise ValueError(f"only one layer of self-attention can grow, not {encoder.self_attention}: no cache")
    return growing.empty(encoder.attention, batch, capacity)


def _refuse(self_attention: bool | int) -> None:
    if self_attention:
        raise ValueError("with self_attention every point depends on all others: no state of constant size")
