"""Whitening and Nystroem features: a kernel as inner products (Garnelo and Czarnecki 2023, Section 3.1, Eq. 4).

    phi(X) = k(X, L) k(L, L)^-1/2     with phi(X) phi(X)' = k(X, L) k(L, L)^-1 k(L, X)

With the keys themselves as landmarks L this is the paper's whitening, exact on the keys. With m < N landmarks it is the
Nystroem approximation of Williams and Seeger 2001. Any operator on these features is a kernel operator: Intention
becomes kernel ridge regression, and kvq_jax.ops.discriminants become kernel discriminants.
"""

import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from kvq_jax.names import choose
from kvq_jax.ops import least_squares, linalg, masks
from kvq_jax.ops.kernels import bind
from kvq_jax.ops.least_squares import positive
from kvq_jax.ops.linalg import matmul, transpose
from kvq_jax.ops.masks import Mask, Scalar


def whitening(
    x: Array,
    landmarks: Array,
    *,
    mask: Mask = None,
    kernel: str | Callable = "gaussian",
    gamma: Scalar | str = "variance",
    jitter: float | None = None,
    root: str = "cholesky",
) -> Array:
    """phi(X) = k(X, L) R with R R' = k(L, L)^-1: Garnelo and Czarnecki 2023, Section 3.1, Eq. 4.

    Apply it to queries and keys. Predictions are the same for every such R. The linear kernel with L = K gives the
    paper's phi(X) = X K'(KK')^-1/2.

    x [..., M, d], landmarks [..., m, d] (the keys, or fewer points; may be learnt), mask [..., m] -> [..., M, m]. The
    feature of a masked landmark is 0, and the others are what they are without it.

    Args:
        kernel, gamma: as in `kvq_jax.ops.kernels.kernel_intention`; the rules for gamma see the landmarks.
        jitter: added to the diagonal of k(L, L), in units of its mean; None: 10 m eps of the m landmarks that are
            there. k(L, L) is singular where landmarks coincide, and for the linear kernel where m > d.
        root: 'cholesky' (R = C'^-1 for k(L, L) = C C') or 'symmetric' (R = k(L, L)^-1/2, the paper's).
    """
    keep = masks.resolve(x, landmarks, landmarks, mask)
    if keep is not None and keep.shape[-2] != 1:
        raise ValueError(f"expected a mask over landmarks, one for all rows, got {jnp.shape(mask)}")
    out, compute = linalg.dtypes(x, landmarks)
    x, landmarks = jnp.asarray(x, compute), jnp.asarray(landmarks, compute)
    landmarks, _, _ = masks.absent(landmarks, landmarks, keep)
    keep = None if keep is None else transpose(keep).astype(compute)
    k = bind(kernel, masks.per_batch(gamma, compute), landmarks, keep)
    return whitener(landmarks, keep, k, jitter, root)(x).astype(out)


def whitener(
    landmarks: Array, keep: Array | None, kernel: Callable, jitter: float | None, root: str
) -> Callable[[Array], Array]:
    """x [..., M, d] -> phi(x) [..., M, m] for landmarks [..., m, d] of which keep [..., m, 1] (None: all) are there."""
    root_of = choose(ROOTS, root, "root")
    if isinstance(jitter, numbers.Real) and jitter < 0:
        raise ValueError(f"jitter must be at least 0, got {jitter}")
    gram = kernel(landmarks, landmarks)
    m, diagonal = gram.shape[-1], jnp.diagonal(gram, axis1=-2, axis2=-1)[..., None]
    there = jnp.ones((m, 1), bool) if keep is None else keep > 0
    if jitter is None:
        jitter = 10 * jnp.finfo(gram.dtype).eps * there.sum(-2, keepdims=True)  # of those that are there
    unit = positive(least_squares.mean(diagonal, there.astype(gram.dtype)))
    # An absent landmark has a row of the unit matrix.
    gram = jnp.where(there & transpose(there), gram, 0)
    gram = gram + jnp.where(there, jitter * lax.stop_gradient(unit), 1) * jnp.eye(m, dtype=gram.dtype)
    inverse = root_of(gram)
    return lambda x: matmul(jnp.where(transpose(there), kernel(x, landmarks), 0), inverse)


def nystroem_intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Mask = None,
    alpha: Scalar = 1e-3,
    kernel: str | Callable = "gaussian",
    gamma: Scalar | str = "variance",
    landmarks: Array | int | None = 16,
    rng: Array | None = None,
    jitter: float | None = None,
    root: str = "cholesky",
) -> Array:
    """phi(Q) (phi(K)'phi(K) + alpha I)^-1 phi(K)'V with the m Nystroem features phi: O(N m^2 + m^3) instead of O(N^3).

    Garnelo and Czarnecki 2023, Section 3.1; Williams and Seeger 2001. The paper names neither the number of landmarks
    nor their choice. With all keys as landmarks it is `kernel_intention`, up to jitter.

    query [..., M, d], key [..., N, d], value [..., N, k], mask [..., N] or [..., M, N] -> [..., M, k]. Under a mask
    [..., M, N] every query has a regression of its own.

    Args:
        alpha: a number >= 0, or an array > 0.
        kernel, gamma: as `kernel_intention`; the rules for gamma see the keys.
        landmarks: m: as many of the keys that the mask keeps, chosen by `greedy_landmarks`, or all of them where there
            are no more; points [m, d] or [..., m, d], which may be learnt; None: all keys.
        rng: a PRNG key, to draw the m landmarks uniformly and without replacement instead. They depend on the order of
            the keys.
        jitter, root: as `whitening`.

    Raises ValueError for a number of landmarks below 1, or with rng above N, too.
    """
    route = least_squares.checked_route(alpha)
    masks.output_shape(query, key, value)
    n = jnp.shape(key)[-2]
    count = landmarks if isinstance(landmarks, numbers.Integral) else None
    if count is not None and not 1 <= count <= (max(n, 1) if rng is not None else count):
        raise ValueError(f"landmarks={count} of {n} keys: expected 1 or more, and no more than keys to draw from")
    given = landmarks is not None and count is None
    if given and (jnp.ndim(landmarks) < 2 or jnp.shape(landmarks)[-1] != jnp.shape(key)[-1]):
        raise ValueError(f"expected landmarks [..., m, {jnp.shape(key)[-1]}], got {jnp.shape(landmarks)}")

    def chosen(k, key, keep):
        if count is None or count >= n:
            return key, keep
        return greedy_landmarks(k, key, keep, count) if rng is None else random_landmarks(rng, key, keep, count)

    def run(query, key, value, keep, alpha, gamma, *points):
        k = bind(kernel, gamma, key, keep)
        phi = whitener(*((points[0], None) if given else chosen(k, key, keep)), k, jitter, root)
        return least_squares.predict(phi(query), least_squares.root(keep) * phi(key), value, alpha, route)

    return least_squares.fit(
        run, query, key, value, mask, scalars=(alpha, gamma), matrices=(landmarks,) if given else ()
    )


def greedy_landmarks(kernel: Callable, key: Array, keep: Array | None, count: int) -> tuple[Array, Array]:
    """The pivots of a pivoted Cholesky factorisation of k(K, K): each is the key that those before it explain least.

    Fine and Scheinberg 2001, in time O(N count^2). The keys are first sorted by their projection on one direction. Ties
    and rounding then fall alike for every order of the keys, and the choice depends on the set alone. No gradient
    passes through it.

    kernel as `bind` gives it, key [..., N, d], keep [..., N, 1] (> 0 for keys that are there; None: all), count < N ->
    points [..., count, d], and which of them are there [..., count, 1]: not those that others explain up to rounding.
    """
    fixed = lax.stop_gradient(key)
    order = jnp.argsort((fixed * jnp.sin(1.0 + jnp.arange(key.shape[-1], dtype=key.dtype))).sum(-1), axis=-1)[..., None]
    fixed = jnp.take_along_axis(fixed, order, axis=-2)
    alone = jax.vmap(lambda x: kernel(x[..., None, :], x[..., None, :])[..., 0, 0], in_axes=-2, out_axes=-1)
    residual = lax.stop_gradient(alone(fixed))
    shape = jnp.broadcast_shapes(residual.shape, () if keep is None else keep.shape[:-1])
    order = jnp.broadcast_to(order, (*shape, 1))
    residual = jnp.broadcast_to(residual, shape)
    if keep is not None:
        keep = jnp.broadcast_to(keep, (*shape, 1))
        residual = jnp.where(jnp.take_along_axis(keep, order, axis=-2)[..., 0] > 0, residual, 0)
    rounding = 10 * count * jnp.finfo(key.dtype).eps * residual.max(-1, keepdims=True)
    fixed = jnp.broadcast_to(fixed, (*shape, key.shape[-1]))

    def step(i, state):
        residual, rows, pivots, there = state
        pivot = jnp.argmax(residual, axis=-1, keepdims=True)  # [..., 1]
        left = jnp.take_along_axis(residual, pivot, axis=-1)
        point = jnp.take_along_axis(fixed, pivot[..., None], axis=-2)
        known = jnp.take_along_axis(rows, pivot[..., None], axis=-1)  # [..., count, 1]
        column = lax.stop_gradient(kernel(point, fixed))[..., 0, :] - (known * rows).sum(-2)
        row = jnp.where(left > rounding, column / jnp.sqrt(positive(left)), 0)
        residual = jnp.where(jnp.arange(shape[-1]) == pivot, 0, jnp.maximum(residual - row**2, 0))
        rows = lax.dynamic_update_index_in_dim(rows, row, i, -2)
        pivots = lax.dynamic_update_index_in_dim(pivots, pivot, i, -2)
        return residual, rows, pivots, lax.dynamic_update_index_in_dim(there, left > rounding, i, -2)

    empty = (*shape[:-1], count)
    rows = jnp.zeros((*empty, shape[-1]), residual.dtype)
    start = residual, rows, jnp.zeros((*empty, 1), int), jnp.zeros((*empty, 1), bool)
    *_, pivots, there = lax.fori_loop(0, count, step, start)
    return _rows(key, jnp.take_along_axis(order, pivots, axis=-2)), there.astype(key.dtype)


def random_landmarks(rng: Array, key: Array, keep: Array | None, count: int) -> tuple[Array, Array | None]:
    """`count` keys drawn without replacement, [..., count, d], and which of them are there, [..., count, 1] or None."""
    shape = key.shape[:-1] if keep is None else jnp.broadcast_shapes(key.shape[:-1], keep.shape[:-1])
    draws = jax.random.uniform(rng, shape)
    draws = draws if keep is None else jnp.where(keep[..., 0] > 0, draws, -1)
    index = lax.top_k(draws, count)[1][..., None]
    return _rows(key, index), None if keep is None else _rows(keep, index)


def _rows(x: Array, index: Array) -> Array:
    """The rows [..., m, d] of x [..., N, d] at index [..., m, 1]."""
    return jnp.take_along_axis(jnp.broadcast_to(x, (*index.shape[:-2], *x.shape[-2:])), index, axis=-2)


@jax.custom_jvp
def inverse_sqrt(matrix: Array) -> Array:
    """matrix^-1/2 [..., n, n] of a symmetric positive definite matrix, by eigenvalues.

    Its derivative (Daleckii and Krein 1965) divides by sums of roots of eigenvalues. The derivative of eigenvectors
    would divide by differences of eigenvalues, which is not finite for repeated ones; nor is the second derivative.
    Eigenvalues below n eps times the largest count as that.
    """
    return _inverse_sqrt(matrix)[0]


def _inverse_sqrt(matrix: Array) -> tuple[Array, Array, Array]:
    values, vectors = jnp.linalg.eigh(matrix)
    floor = matrix.shape[-1] * jnp.finfo(matrix.dtype).eps * values[..., -1:]
    roots = jnp.sqrt(jnp.maximum(values, floor))
    return matmul(vectors / roots[..., None, :], transpose(vectors)), roots, vectors


@inverse_sqrt.defjvp
def _inverse_sqrt_jvp(primals, tangents):
    (matrix,), (change,) = primals, tangents
    result, roots, vectors = _inverse_sqrt(matrix)
    a, b = roots[..., :, None], roots[..., None, :]
    # (a^-1 - b^-1) / (a^2 - b^2), without the difference
    inner = -matmul(transpose(vectors), matmul((change + transpose(change)) / 2, vectors)) / (a * b * (a + b))
    return result, matmul(vectors, matmul(inner, transpose(vectors)))


# Name -> k(L, L) -> R with R R' = k(L, L)^-1.
ROOTS = {"cholesky": lambda gram: transpose(linalg.inverse_triangle(linalg.cholesky(gram))), "symmetric": inverse_sqrt}
