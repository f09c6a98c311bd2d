"""Attention: operators that weigh values by a similarity of query and key."""

import contextlib
import contextvars
import functools
import math
import numbers
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import Array

from kvq_jax.ops import linalg, masks
from kvq_jax.ops.masks import Mask, Scalar, per_batch
from kvq_jax.ops.similarity import absolute_distance, mix, product, scores

# Scores by which a CPU computes matrices of them in turn: of one matrix, and of all. Many large ones together leave its
# caches: eight heads of eight sets of 512, on one core, take six times as long as one after the other, and their
# gradient three times.
_LARGE, _TOO_MANY = 2**16, 2**21
_TOGETHER = contextvars.ContextVar("together", default=False)


@contextlib.contextmanager
def scores_together() -> Iterator[None]:
    """Within it a traced operator has no loop over matrices of scores: compilers count the work of a loop once."""
    token = _TOGETHER.set(True)
    try:
        yield
    finally:
        _TOGETHER.reset(token)


def softmax_attention(
    query: Array, key: Array, value: Array, *, mask: Mask = None, scale: Scalar = 1.0, implementation: str | None = None
) -> Array:
    """softmax(scale Q K') V: Garnelo and Czarnecki 2023 (arXiv 2305.10203), Section 2.

    Scores are not divided by sqrt(d), as in that paper (Appendix 8 too); pass scale=d ** -0.5 for Vaswani et al. 2017.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k].

    Args:
        scale: multiplies the scores.
        implementation: None: on GPU and TPU, for bfloat16 and float16 with k = d, what `jax.nn.dot_product_attention`
            chooses, and elsewhere our products, whose weights are float32 or float64 throughout. 'xla' or 'cudnn': that
            function's implementation of this name on every platform, for k = d; 'cudnn' (flash attention) needs memory
            of O(M + N) without a mask, but has no second derivatives or forward mode and takes only some shapes, of
            bfloat16 and float16. Either raises what it raises for what it does not support.
    """

    def weigh(query, key, mask, scale):
        return _exponentials(scores(query, key) * scale, mask)

    batch = masks.output_shape(query, key, value)[:-2]
    ours = functools.partial(_attend, weigh=weigh, option=per_batch(scale, batch=batch))
    library = functools.partial(_library_softmax, scale=scale, implementation=implementation)
    if implementation is not None:
        return library(query, key, value, mask)
    half = linalg.dtypes(query, key, value)[0] in (jnp.bfloat16, jnp.float16)
    if not half or jnp.shape(query)[-1:] != jnp.shape(value)[-1:] or jax.default_backend() == "cpu":
        return ours(query, key, value, mask)
    # Known when the program is lowered: beside an accelerator too there is a CPU to compile for.
    return jax.lax.platform_dependent(query, key, value, mask, cpu=ours, default=library)


def linear_attention(query: Array, key: Array, value: Array, *, mask: Mask = None) -> Array:
    """Q K' V, no normaliser: Garnelo and Czarnecki 2023, Section 2. Also Intention's limit alpha -> infinity.

    Computed as Q (K' V) where that is the cheaper order, unless each query has its own mask.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k].
    """
    pairs = masks.resolve(query, key, value, mask)
    m, d, n, k = *jnp.shape(query)[-2:], *jnp.shape(value)[-2:]
    if (pairs is None or pairs.shape[-2] == 1) and (m + n) * d * k < m * n * (d + k):
        out, compute = linalg.dtypes(query, key, value)
        query, key, value = (jnp.asarray(x, out) for x in (query, key, value))
        key, value, _ = masks.absent(key, value, pairs)
        if pairs is not None:  # what is not finite would spoil the zeros of a query without keys
            query = jnp.where(pairs.any(-1, keepdims=True), query, 0)
        state = product("...nd,...nk->...dk", key, value)
        return product("...md,...dk->...mk", query.astype(compute), state).astype(out)
    return _attend(query, key, value, mask, lambda query, key, mask, _: (_keep(scores(query, key), mask), None))


def laplace_attention(
    query: Array, key: Array, value: Array, *, mask: Mask = None, length_scale: Scalar = 1.0
) -> Array:
    """softmax_n(-|q_m - k_n|_1 / length_scale) V, length_scale > 0: Kim et al. 2019 (arXiv 1901.05761), Section 2.2.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k].
    """
    masks.check_positive("length_scale", length_scale)
    batch = masks.output_shape(query, key, value)[:-2]

    def weigh(query, key, mask, length_scale):
        return _exponentials(-absolute_distance(query, key) / length_scale, mask)

    return _attend(query, key, value, mask, weigh, per_batch(length_scale, batch=batch))


def uniform_attention(query: Array, key: Array, value: Array, *, mask: Mask = None) -> Array:
    """mean_n V for every query: the aggregation of neural processes (Garnelo et al. 2018, arXiv 1807.01622).

    Only the shape of `query` and `key` matters.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k].
    """
    shape = masks.output_shape(query, key, value)
    pairs = masks.resolve(query, key, value, mask)
    out, compute = linalg.dtypes(query, key, value)
    # The keys' contents play no part, so theirs cannot spoil a query.
    _, value, spoilt = masks.absent(jnp.zeros_like(key), jnp.asarray(value, compute), pairs)
    weights = jnp.ones((1, value.shape[-2]), compute) if pairs is None else pairs.astype(compute)
    weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1)
    mean = masks.owe(mix(weights, value), spoilt)
    return jnp.broadcast_to(mean.astype(out), jnp.broadcast_shapes(shape, mean.shape))


def erf_attention(query: Array, key: Array, value: Array, *, mask: Mask = None) -> Array:
    """erf(Q K') V, elementwise and not normalised: Garnelo and Czarnecki 2023, Section 2, example 1.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k].
    """

    def weigh(query, key, mask, _):
        return _keep(jax.lax.erf(scores(query, key)), mask), None

    return _attend(query, key, value, mask, weigh)


def _attend(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask,
    weigh: Callable[[Array, Array, Array | None, Scalar], tuple[Array, Array | None]],
    option: Scalar = 1.0,
) -> Array:
    """weights V / total, of weigh(query, key, mask, option) -> weights [..., M, N], total [..., M, 1].

    The mask is [..., 1 or M, N] or None, the option a number or [..., 1, 1]. A total of None divides nothing. To divide
    after the product costs k numbers for each query, not N.
    """
    query, key, value, pairs, spoilt, shape = _prepared(query, key, value, mask)
    if key.shape[-2] == 0:
        return jnp.zeros(shape, value.dtype)

    def mixed(query, key, value, pairs, option):
        weights, total = weigh(query, key, pairs, option)
        return mix(weights, value) if total is None else mix(weights, value) / total

    of_one = shape[-2] * key.shape[-2]
    in_turn = of_one >= _LARGE and math.prod(shape[:-2]) * of_one >= _TOO_MANY and not _TOGETHER.get()
    if in_turn and jax.default_backend() == "cpu":
        mixed = _in_turn(mixed)
    outputs = mixed(query, key, value, pairs, option)
    return masks.owe(outputs, spoilt).astype(value.dtype)


def _in_turn(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` of query, key, value and more matrices [..., a, b], one after the other.

    The gradient computes each again. Arguments that are None or numbers are the same for all. Values with a leading
    dimension that nothing else has share their scores.
    """

    def each(query, key, value, *more):
        given = query, key, value, *more
        shared = [x is None or isinstance(x, numbers.Real) for x in given]
        matrices = [x for x, same in zip(given, shared) if not same]
        if all(x is value or x.ndim < value.ndim for x in matrices):
            return jax.vmap(lambda own: each(query, key, own, *more))(value)
        batch = jnp.broadcast_shapes(*(x.shape[:-2] for x in matrices))

        def of_one(own):
            own = iter(own)
            return function(*(x if same else next(own) for x, same in zip(given, shared)))

        outputs = jax.lax.map(jax.checkpoint(of_one, prevent_cse=False), [_flat(x, batch) for x in matrices])
        return outputs.reshape(*batch, *outputs.shape[-2:])

    return each


def _flat(x: Array, batch: tuple[int, ...]) -> Array:
    """x [..., a, b], broadcast to the leading dimensions `batch`, with one in their place."""
    return jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(math.prod(batch), *x.shape[-2:])


def _prepared(query: Array, key: Array, value: Array, mask: Mask) -> tuple:
    """query, key, value in the output's dtype and without what is masked; pairs, spoilt (see masks), output's shape."""
    shape, pairs = masks.output_shape(query, key, value), masks.resolve(query, key, value, mask)
    out, _ = linalg.dtypes(query, key, value)
    query, key, value = (jnp.asarray(x, out) for x in (query, key, value))
    key, value, spoilt = masks.absent(key, value, pairs)
    return query, key, value, pairs, spoilt, shape


def _library_softmax(
    query: Array, key: Array, value: Array, mask: Mask, scale: Scalar, implementation: str | None
) -> Array:
    """`softmax_attention` by jax.nn.dot_product_attention, with all leading dimensions as its batch and one head."""
    query, key, value, pairs, spoilt, shape = _prepared(query, key, value, mask)
    if key.shape[-2] == 0:
        return jnp.zeros(shape, value.dtype)
    if not isinstance(scale, numbers.Real):
        wide = query.astype(linalg.dtypes(query)[1])
        query, scale = (wide * per_batch(scale)).astype(query.dtype), 1.0
    batch = jnp.broadcast_shapes(shape[:-2], query.shape[:-2], () if pairs is None else pairs.shape[:-2])

    rows = (_flat(x, batch)[:, :, None] for x in (query, key, value))
    keep = None if pairs is None else _flat(pairs, batch)[:, None]
    mixed = jax.nn.dot_product_attention(*rows, mask=keep, scale=scale, implementation=implementation)
    mixed = mixed.reshape(*batch, *shape[-2:])
    if pairs is not None:
        mixed = jnp.where(pairs.any(-1, keepdims=True), mixed, 0)
    return masks.owe(mixed, spoilt)


def _exponentials(scores: Array, mask: Mask) -> tuple[Array, Array]:
    """exp(scores - their maximum) [..., M, N], 0 under the mask, and their sum over N [..., M, 1].

    The sum is infinite where no key is left, so that the weights are zeros.
    """
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    total = weights.sum(-1, keepdims=True)
    return weights, total if mask is None else jnp.where(mask.any(-1, keepdims=True), total, jnp.inf)


def _keep(weights: Array, mask: Mask) -> Array:
    return weights if mask is None else jnp.where(mask, weights, 0)
