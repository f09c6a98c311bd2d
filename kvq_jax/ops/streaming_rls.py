"""Recursive least squares that keeps its solution: the weights and the inverse (K'K + alpha I)^-1.

By Woodbury's identity, a point costs O(d^2 + d k) and a read no solve, against O(d^3) per read for the sums of
`intention_stream`. In return, states do not merge; alpha is chosen at the start (with forgetting it fades, as all
earlier points do); and rounding accumulates, in proportion to the condition number. Use it where every point is
followed by a read, else the sums.
"""

import numbers
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.ops import least_squares, linalg
from kvq_jax.ops.linalg import matmul, transpose
from kvq_jax.ops.masks import Mask, Scalar, check_positive
from kvq_jax.ops.streaming_intention import present_rows


class RlsState(NamedTuple):
    """What recursive least squares remembers of the pairs seen: its regression so far."""

    inverse: Array  # [..., d, d], (sum_i l^(n-i) c_i k_i k_i' + l^n alpha I)^-1
    weights: Array  # [..., d, k], that times sum_i l^(n-i) c_i k_i v_i'


# Points that are added together where any are forgotten, and the inverse is divided by l^points: more than d points,
# see `_added`, or few.
_AT_ONCE, _AT_ONCE_OF_FEW = 32, 8


def rls_init(d: int, k: int, *, alpha: Scalar = 1e-3, batch: tuple[int, ...] = (), dtype=jnp.float32) -> RlsState:
    """The state of no points, for keys of d features and values of k: inverse I / alpha [*batch, d, d], weights 0.

    `dtype` is widened to float32 at least. Raises ValueError if alpha is a number that is not positive.
    """
    check_positive("alpha", alpha)
    dtype = jnp.promote_types(dtype, jnp.float32)
    start = jnp.eye(d, dtype=dtype) / jnp.asarray(alpha, dtype)[..., None, None]
    return RlsState(jnp.broadcast_to(start, (*batch, d, d)), jnp.zeros((*batch, d, k), dtype))


def rls_update(
    state: RlsState,
    key: Array,
    value: Array,
    mask: Mask = None,
    weight: Array | None = None,
    *,
    forgetting: Scalar = 1.0,
) -> RlsState:
    """Adds points in order: Haykin, Adaptive Filter Theory, 'The Recursive Least-Squares Algorithm'.

    A chunk is added at once, by Woodbury's identity; where points are forgotten, 32 at a time, or 8 where d >= 32. With
    rows scaled by sqrt(c), c_i = weight_i l^(points after i in the chunk), and P faded by l^(points in the chunk):
    G = P K' (I + K P K')^-1, w <- w + G (V - K w), P <- P - G K P. Of more than d points that difference cancels. With
    P = L L' the same is P <- L (I + L'K'K L)^-1 L', G = P K'.

    key [..., N, d] and value [..., N, k] are in order of time; one point (N = 1) is the textbook update by Sherman and
    Morrison. A point that mask [..., N] leaves out ages nobody; one of weight 0 (weight [..., N], >= 0) still ages the
    others. forgetting is l in (0, 1]. Takes O(N d^2 + N^2 d), or O(N d^2 + d^3) of more than d points, for the points
    added at once. Raises ValueError if shapes do not fit, or forgetting is a number outside (0, 1].
    """
    check_positive("forgetting", forgetting, 1)
    key, value, weight, keep = present_rows(key, value, mask, weight)
    count, (d, k) = key.shape[-2], state.weights.shape[-2:]
    if (key.shape[-1], value.shape[-1]) != (d, k):
        raise ValueError(f"expected keys [..., N, {d}] and values [..., N, {k}], got {key.shape} and {value.shape}")
    if count == 0:
        return state
    alive = jnp.ones(count, key.dtype) if keep is None else keep.astype(key.dtype)
    weight = jnp.ones(count, key.dtype) if weight is None else jnp.asarray(weight, key.dtype)
    size = _AT_ONCE if key.shape[-1] < _AT_ONCE else _AT_ONCE_OF_FEW
    if count <= size or (isinstance(forgetting, numbers.Real) and forgetting == 1):
        return _added(state, key, value, alive, weight, forgetting)
    first = (count - 1) % size + 1
    rows = [(key, -2), (value, -2), (alive, -1), (weight, -1)]
    state = _added(state, *(lax.slice_in_dim(x, 0, first, axis=axis) for x, axis in rows), forgetting)
    parts = tuple(_in_parts(lax.slice_in_dim(x, first, None, axis=axis), axis, size) for x, axis in rows)
    return lax.scan(lambda state, part: (_added(state, *part, forgetting), None), state, parts)[0]


def _in_parts(x: Array, axis: int, size: int) -> Array:
    """[n / size, ...]: `size` consecutive rows each, which lie along an axis -1 or -2."""
    parts = jnp.moveaxis(x, axis, 0)
    parts = parts.reshape(len(parts) // size, size, *parts.shape[1:])
    return jnp.moveaxis(parts, 1, axis)


def _added(state: RlsState, key: Array, value: Array, alive: Array, weight: Array, forgetting: Scalar) -> RlsState:
    """The state after points that are added at once; alive [..., N] is 0 for those that are left out, else 1."""
    age = jnp.flip(jnp.cumsum(jnp.flip(alive, -1), -1), -1)
    factor = jnp.asarray(forgetting, key.dtype)[..., None]
    c = factor ** (age - alive) * weight
    root = least_squares.root(c)[..., None]
    key, value = root * key, root * value
    inverse = state.inverse / (factor ** age[..., :1])[..., None]

    n, d = key.shape[-2:]
    if n > d:
        lower = linalg.cholesky(inverse)
        spread = matmul(key, lower)  # K L, [..., N, d]
        system = matmul(transpose(spread), spread) + jnp.eye(d, dtype=key.dtype)
        inverse = matmul(lower, linalg.solve(system, transpose(lower)))
        gain = matmul(inverse, transpose(key))  # [..., d, N]
    else:
        spread = matmul(key, inverse)  # K P, [..., N, d]
        system = matmul(spread, transpose(key)) + jnp.eye(n, dtype=key.dtype)
        gain = transpose(linalg.solve(system, spread))
        inverse = inverse - matmul(gain, spread)
    solution = state.weights + matmul(gain, value - matmul(key, state.weights))
    return RlsState((inverse + transpose(inverse)) / 2, solution)


def rls_read(state: RlsState, query: Array) -> Array:
    """Q w, [..., M, d] -> [..., M, k]: equal to `intention` of the points seen, if nothing was forgotten.

    Raises ValueError if the widths do not fit.
    """
    d = state.weights.shape[-2]
    if jnp.ndim(query) < 2 or jnp.shape(query)[-1] != d:
        raise ValueError(f"expected a query [..., M, {d}], got {jnp.shape(query)}")
    return matmul(jnp.asarray(query, state.weights.dtype), state.weights)
