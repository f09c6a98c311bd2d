"""Operators whose state is a few sums over keys: Intention (K'K, K'V), linear attention (K'V), the mean (number, sum).

Queries may come at `read`. Sums can forget what they have seen (subtract), weigh their points, and let all points fade:
with a forgetting factor l a point counts l^age, where age is the number of points that came after it. Rows of a chunk
are in order of time. A masked point is absent and ages nobody. States of a stream that fades are merged in order:
merge(earlier, later).
"""

import numbers
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from kvq_jax.ops import least_squares, linalg, masks
from kvq_jax.ops.linalg import cross, matmul
from kvq_jax.ops.masks import Mask, Scalar, per_batch
from kvq_jax.ops.streaming_fold import Stream, check_sums


class Moments(NamedTuple):
    """Sums of least squares. A prior is a state too: Moments(1., p * eye(d), p * w) pulls towards w.

    It fades as points do.
    """

    decay: Array  # [...], l^(number of points): what merging this state after another does to the other
    gram: Array  # [..., d, d], sum_i c_i k_i k_i' with c_i = weight_i l^age_i
    cross: Array  # [..., d, k], sum_i c_i k_i v_i'


class LinearState(NamedTuple):
    """What linear attention remembers of the keys seen."""

    decay: Array  # [...]
    cross: Array  # [..., d, k], sum_i c_i k_i v_i'


class MeanState(NamedTuple):
    """What a mean remembers of the values seen."""

    decay: Array  # [...]
    count: Array  # [..., 1, 1], sum_i c_i
    total: Array  # [..., 1, k], sum_i c_i v_i'


def intention_stream(
    query: Array | None = None, *, alpha: Scalar = 1e-3, form: str = "ridge", forgetting: Scalar = 1.0
) -> Stream:
    """Q (K'K + alpha I)^-1 K'V as a stream: the primal form of Garnelo and Czarnecki 2023, Section 3.

    With weights and forgetting it minimises sum_i weight_i l^(n-i) |v_i - w'k_i|^2 + alpha |w|^2: recursive least
    squares (Haykin, Adaptive Filter Theory, chapter 'The Recursive Least-Squares Algorithm'). The ridge there fades
    with l^n; for that start from `Moments(1., alpha * eye(d), zeros)` and read with a smaller alpha.

    Args:
        query: [..., M, d] to read at, unless `read` is given others.
        alpha, form: as in `intention`; `finish` and `read` may choose others: `read(state, query, alpha=...)`.
        forgetting: l in (0, 1].

    Returns:
        A Stream with states `Moments`; an update with n keys costs O(n d (d + k)), a read O(d^3 + d^2 k + M d k).
        `update(state, key, value, mask=None, weight=None)` and `forget` take weights [..., N], and masks [..., N] only.
        `forget` subtracts points at the weight given, which for a point that has aged is weight_i l^age_i.

    Raises ValueError for a number l outside (0, 1]. The functions of the Stream raise it for shapes that do not fit,
    and `read` for alpha or form out of range, or if no query is known.
    """

    def of(key, value, rows):
        return cross(rows(key), key), cross(key, rows(value))

    def finish(state, *, alpha=alpha, form=form):
        return weights(state, alpha=alpha, form=form)

    def answer(solved, given=None):
        return matmul(_chosen(given, query, solved, solved.shape[-2]), solved)

    return _sums(Moments, lambda d, k: ((d, d), (d, k)), of, finish, answer, forgetting)


def informer_stream(query: Array | None = None, *, alpha: Scalar = 0.5, forgetting: Scalar = 1.0) -> Stream:
    """Q [(1 - alpha) K'K + alpha I]^-1 K'V as a stream: `intention_stream` in the Informer's form (Appendix 8)."""
    return intention_stream(query, alpha=alpha, form="informer", forgetting=forgetting)


def weights(state: Moments, *, alpha: Scalar = 1e-3, form: str = "ridge") -> Array:
    """w = (K'K + alpha I)^-1 K'V [..., d, k] of the keys seen: Garnelo and Czarnecki 2023, Section 3.

    `state` is that of an Intention stream; zeros before any key. For alpha = 0 it is the pseudo-inverse of K'K, for
    which singular values of K below sqrt(10 d eps) of the largest are zero. Raises ValueError for an unknown form and
    for a number alpha that is out of range.
    """
    if least_squares.checked_route(alpha, "primal", form) == "pinv":
        return matmul(linalg.pinv(state.gram), state.cross)
    return linalg.solve(least_squares.regularised(state.gram, per_batch(alpha, state.gram.dtype), form), state.cross)


def linear_stream(query: Array | None = None, *, forgetting: Scalar = 1.0) -> Stream:
    """Q K'V as a stream: Garnelo and Czarnecki 2023, Section 2.

    With forgetting it is the retention of Sun et al. 2023 (arXiv 2307.08621). States are `LinearState`; query, weights,
    forgetting and errors as `intention_stream`.
    """
    return _sums(
        LinearState,
        lambda d, k: ((d, k),),
        lambda key, value, rows: (cross(key, rows(value)),),
        lambda state: state.cross,
        lambda total, given=None: matmul(_chosen(given, query, total, total.shape[-2]), total),
        forgetting,
    )


def uniform_stream(query: Array | None = None, *, forgetting: Scalar = 1.0) -> Stream:
    """mean_n V as a stream, the same for every query: the aggregation of neural processes (arXiv 1807.01622).

    Only the shape of the query matters. States are `MeanState`; weights, forgetting and errors as `intention_stream`.
    """

    def of(key, value, rows):
        one = rows(jnp.ones((value.shape[-2], 1), value.dtype))
        return one.sum(-2, keepdims=True), rows(value).sum(-2, keepdims=True)

    def finish(state):
        return state.total / jnp.where(state.count > 0, state.count, 1)

    def answer(mean, given=None):
        *batch, m, _ = _chosen(given, query, mean).shape
        return jnp.broadcast_to(mean, (*jnp.broadcast_shapes(mean.shape[:-2], tuple(batch)), m, mean.shape[-1]))

    return _sums(MeanState, lambda d, k: ((1, 1), (1, k)), of, finish, answer, forgetting)


def _sums(
    kind: Callable, shapes: Callable, sums: Callable, finish: Callable, answer: Callable, forgetting: Scalar
) -> Stream:
    """A stream of decayed sums.

    Args:
        kind: the state's type: decay [...], then sums that are matrices [..., *, *].
        shapes: (d, k) -> their last two dimensions.
        sums: (key, value, rows) -> the sums over the keys of a chunk, where rows(x) weighs the rows of x.
        finish, answer: of the Stream.
        forgetting: l in (0, 1].
    """
    masks.check_positive("forgetting", forgetting, 1)
    fades = not (isinstance(forgetting, numbers.Real) and forgetting == 1)

    def init(d, k, *, batch=(), dtype=jnp.float32):
        dtype = jnp.promote_types(dtype, jnp.float32)
        zeros = (jnp.zeros((*batch, *shape), dtype) for shape in shapes(d, k))
        return kind(jnp.ones(batch if fades else (), dtype), *zeros)

    def of(key, value, mask, weight, fades):
        key, value, weight, keep = present_rows(key, value, mask, weight)
        decay = jnp.ones((), key.dtype)
        if fades:
            number = isinstance(forgetting, numbers.Real)
            factor = forgetting if number else jnp.asarray(forgetting, key.dtype)[..., None]
            alive = jnp.ones(key.shape[-2], key.dtype) if keep is None else keep.astype(key.dtype)
            later = jnp.flip(jnp.cumsum(jnp.flip(alive, -1), -1), -1) - alive
            aged = jnp.asarray(factor, key.dtype) ** later
            weight = aged if weight is None else weight * aged
            decay = jnp.prod(jnp.where(alive > 0, factor, 1).astype(key.dtype), -1)
        rows = lambda x: x if weight is None else weight[..., None] * x
        return kind(decay, *sums(key, value, rows))

    def merge(a, b):
        check_sums(a[1:], b[1:])
        fade = per_batch(b.decay) if fades else 1
        return kind(a.decay * b.decay, *(fade * x + y for x, y in zip(a[1:], b[1:])))

    def update(state, key, value, mask=None, weight=None):
        return merge(state, of(key, value, mask, weight, fades))

    def forget(state, key, value, mask=None, weight=None):
        gone = of(key, value, mask, weight, False)
        check_sums(state[1:], gone[1:])
        return kind(state.decay, *(x - y for x, y in zip(state[1:], gone[1:])))

    return Stream(init, update, merge, finish, answer, forget)


def present_rows(key: Array, value: Array, mask: Mask, weight: Array | None):
    """-> key, value, weight [..., N] or None, mask [..., N] or None, in the dtype to compute in.

    Rows of masked points are zero.
    """
    _, compute = linalg.dtypes(key, value)
    key, value = (jnp.asarray(x, compute) for x in (key, value))
    pairs = masks.resolve(jnp.zeros((1, key.shape[-1]), compute), key, value, mask)
    key, value, _ = masks.absent(key, value, pairs)
    keep = None if pairs is None else pairs[..., 0, :]
    if weight is None:
        # Rows are zero already; the weights say so to sums that do not use them.
        return key, value, None if keep is None else keep.astype(compute), keep
    weight = jnp.asarray(weight, compute)
    fits = weight.shape[-1:] == key.shape[-2:-1]
    if not fits or masks.broadcast(weight.shape[:-1], key.shape[:-2], value.shape[:-2]) is None:
        raise ValueError(f"expected a weight [..., {key.shape[-2]}] over keys {key.shape}, got {weight.shape}")
    return key, value, weight if keep is None else jnp.where(keep, weight, 0), keep


def _chosen(given: Array | None, own: Array | None, finished: Array, d: int | None = None) -> Array:
    """The query to read at, of d features where they matter."""
    query = own if given is None else given
    if query is None:
        raise ValueError("no query to read at: call read(state, query), or make the stream with one")
    if d is not None and (jnp.ndim(query) < 2 or jnp.shape(query)[-1] != d):
        raise ValueError(f"expected a query [..., M, {d}], as wide as the keys seen, got {jnp.shape(query)}")
    return jnp.asarray(query, linalg.dtypes(query, finished)[1])
