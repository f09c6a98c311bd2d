"""Attention with fixed queries as a stream: softmax, Laplace, erf. A state belongs to the queries of its stream.

Softmax attention follows Feng et al. 2023, CMANP (arXiv 2305.14567), Sections 3.1.1 and A.1: with the log-normaliser
log c and the running average CA of a query, new scores s_i and values v_i give

    log c' = log(c + sum_i exp(s_i)),    CA' = c / c' CA + sum_i exp(s_i) / c' v_i.

One thing differs. Instead of log c we keep a maximum score and the sum of exp(s_i - maximum), and instead of CA the sum
that this divides. One float32 number rounds a log-normaliser of 1e4 by 5e-4, and with it all weights; a maximum is
itself a score and exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.ops import linalg, masks
from kvq_jax.ops.masks import Mask, Scalar, per_batch
from kvq_jax.ops.similarity import absolute_distance, mix, scores
from kvq_jax.ops.streaming_fold import Stream, check_sums


class NormalisedState(NamedTuple):
    """Sums over keys of exp(s - maximum) and of exp(s - maximum) v, for each query."""

    maximum: Array  # [..., M], the largest score; -inf before any key
    normaliser: Array  # [..., M], 0 before any key, else at least 1
    total: Array  # [..., M, k]

    @property
    def log_normaliser(self) -> Array:
        """log c = log sum_i exp(s_i), [..., M]; -inf before any key."""
        some = self.normaliser > 0
        return jnp.where(some, self.maximum + jnp.log(jnp.where(some, self.normaliser, 1)), -jnp.inf)

    @property
    def average(self) -> Array:
        """CA = sum_i exp(s_i) v_i / c, [..., M, k]; zeros before any key."""
        return self.total / jnp.where(self.normaliser > 0, self.normaliser, 1)[..., None]


class TotalState(NamedTuple):
    """What unnormalised attention remembers of the keys seen; zeros before any."""

    total: Array  # [..., M, k]


def softmax_stream(query: Array, *, scale: Scalar = 1.0) -> Stream:
    """softmax(scale Q K') V as a stream: Feng et al. 2023, CMANP, Sections 3.1.1 and A.1.

    query [..., M, d] is fixed: `read(state)` takes no other. States are `NormalisedState`, of size O(M k); an update
    with n keys costs O(M n (d + k)). Masks may be [..., N] or [..., M, N]. The functions of the Stream raise ValueError
    for shapes that do not fit and for a query given to `read`.
    """
    return _normalised(query, lambda query, key: scores(query, key) * per_batch(scale))


def laplace_stream(query: Array, *, length_scale: Scalar = 1.0) -> Stream:
    """softmax_n(-||q_m - k_n||_1 / length_scale) V as a stream: that of `softmax_stream` with other scores.

    query [..., M, d] is fixed. Raises ValueError if length_scale is a number that is not positive.
    """
    masks.check_positive("length_scale", length_scale)
    return _normalised(query, lambda query, key: -absolute_distance(query, key) / per_batch(length_scale))


def erf_stream(query: Array) -> Stream:
    """erf(Q K') V as a stream: a plain sum over keys, so it can also forget.

    query [..., M, d] is fixed. States are `TotalState` [..., M, k]; errors as `softmax_stream`.
    """
    query = jnp.asarray(query)

    def init(d, k, *, batch=(), dtype=jnp.float32):
        shape, dtype = _shape(query, d, batch), linalg.dtypes(query, jnp.zeros((), dtype))[1]
        return TotalState(jnp.zeros((*shape, k), dtype))

    def of(key, value, mask):
        key, value, spoilt, pairs = _present(query, key, value, mask)
        weights = lax.erf(scores(query, key))
        weights = weights if pairs is None else jnp.where(pairs, weights, 0)
        return TotalState(masks.owe(mix(weights, value), spoilt))

    def merge(a, b):
        check_sums(a, b)
        return TotalState(a.total + b.total)

    def forget(state, key, value, mask=None):
        gone = of(key, value, mask)
        check_sums(state, gone)
        return TotalState(state.total - gone.total)

    return Stream(
        init,
        lambda state, key, value, mask=None: merge(state, of(key, value, mask)),
        merge,
        lambda state: state.total,
        _fixed,
        forget,
    )


def _normalised(query: Array, score: Callable[[Array, Array], Array]) -> Stream:
    """sum_n exp(s_n) v_n / sum_n exp(s_n), for score(query [..., M, d], key [..., N, d]) -> [..., M, N]."""
    query = jnp.asarray(query)

    def init(d, k, *, batch=(), dtype=jnp.float32):
        shape, dtype = _shape(query, d, batch), linalg.dtypes(query, jnp.zeros((), dtype))[1]
        return NormalisedState(jnp.full(shape, -jnp.inf, dtype), jnp.zeros(shape, dtype), jnp.zeros((*shape, k), dtype))

    def of(key, value, mask):
        key, value, spoilt, pairs = _present(query, key, value, mask)
        s = score(query, key)
        s = s if pairs is None else jnp.where(pairs, s, -jnp.inf)
        # Any reference point gives the same output, so no gradient passes through the choice of one.
        maximum = lax.stop_gradient(s.max(-1, initial=-jnp.inf))
        p = jnp.exp(s - _reference(maximum)[..., None])
        return NormalisedState(maximum, p.sum(-1), masks.owe(mix(p, value), spoilt))

    return Stream(
        init,
        lambda state, key, value, mask=None: _merge(state, of(key, value, mask)),
        _merge,
        lambda state: state.average,
        _fixed,
    )


def _merge(a: NormalisedState, b: NormalisedState) -> NormalisedState:
    check_sums([a.total], [b.total])
    maximum = jnp.maximum(a.maximum, b.maximum)
    x, y = (jnp.exp(state.maximum - _reference(maximum)) for state in (a, b))
    total = x[..., None] * a.total + y[..., None] * b.total
    return NormalisedState(maximum, x * a.normaliser + y * b.normaliser, total)


def _reference(maximum: Array) -> Array:
    """What to subtract from scores: 0 where there are none, so that exp(-inf - 0) = 0 and not NaN."""
    return jnp.where(maximum == -jnp.inf, 0, maximum)


def _present(query: Array, key: Array, value: Array, mask: Mask):
    """key and value without what is masked, the queries owed a NaN, and the mask [..., 1 or M, N] or None."""
    key, value = jnp.asarray(key), jnp.asarray(value)
    pairs = masks.resolve(query, key, value, mask)
    return *masks.absent(key, value, pairs), pairs


def _shape(query: Array, d: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    if query.ndim < 2 or query.shape[-1] != d:
        raise ValueError(f"expected queries [..., M, {d}] for keys of {d} features, got {query.shape}")
    return (*jnp.broadcast_shapes(query.shape[:-2], batch), query.shape[-2])


def _fixed(output: Array, query: Array | None = None) -> Array:
    if query is not None:
        raise ValueError("this stream reads only at the queries it was made with: call read(state)")
    return output
