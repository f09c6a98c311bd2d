"""Whitening and Nystroem features: a kernel as inner products of vectors (Garnelo and Czarnecki 2023, Section 3.1, Eq. 4).

    phi(X) = k(X, L) k(L, L)^-1/2     with phi(X) phi(X)' = k(X, L) k(L, L)^-1 k(L, X)

With the keys themselves as landmarks L this is the paper's whitening, exact on the keys; with m < N landmarks it is the Nystroem
approximation of Williams and Seeger 2001. Any operator on these features is a kernel operator: Intention becomes kernel ridge
regression, and the discriminants of kvq_jax.ops.covariance become kernel discriminants.
"""

import numbers
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from kvq_jax.ops import linalg, masks, regression
from kvq_jax.ops.kernels import bind
from kvq_jax.ops.linalg import matmul, transpose

Array = jax.Array


def whitening(
    x: Array,
    landmarks: Array,
    *,
    mask: Array | None = None,
    kernel: str | Callable = "gaussian",
    gamma: float | Array | str = "variance",
    jitter: float | None = None,
    root: str = "cholesky",
) -> Array:
    """phi(X) = k(X, L) R with R R' = k(L, L)^-1: Garnelo and Czarnecki 2023, Section 3.1, Eq. 4. Apply it to queries and keys.

    Predictions are the same for every such R. The linear kernel with L = K gives the paper's phi(X) = X K'(KK')^-1/2.

    Args:
        x: [..., M, d].
        landmarks: [..., m, d]: the keys, or fewer points. May be learnt.
        mask: [..., m], True = take part. The feature of a masked landmark is 0, and the others are what they are without it.
        kernel, gamma: as in `kvq_jax.ops.kernels.kernel_intention`; the rules for gamma see the landmarks.
        jitter: added to the diagonal of k(L, L), in units of its mean; None: 10 m eps. k(L, L) is singular where landmarks
            coincide, and for the linear kernel where m > d.
        root: 'cholesky' (R = C'^-1 for k(L, L) = C C') or 'symmetric' (R = k(L, L)^-1/2, the paper's).

    Returns:
        [..., M, m].

    Raises:
        ValueError: if shapes do not fit, for an unknown kernel, rule or root.
    """
    keep = masks.resolve(x, landmarks, landmarks, mask)
    if keep is not None and keep.shape[-2] != 1:
        raise ValueError(f"expected a mask over landmarks, one for all rows, got {jnp.shape(mask)}")
    out, compute = linalg.dtypes(x, landmarks)
    x, landmarks = jnp.asarray(x, compute), jnp.asarray(landmarks, compute)
    landmarks, _, _ = masks.absent(landmarks, landmarks, keep)
    keep = None if keep is None else transpose(keep).astype(compute)
    gamma = gamma if isinstance(gamma, (numbers.Real, str)) else jnp.asarray(gamma, compute)[..., None, None]
    return whitener(landmarks, keep, bind(kernel, gamma, landmarks, keep), jitter, root)(x).astype(out)


def whitener(
    landmarks: Array, keep: Array | None, kernel: Callable, jitter: float | None, root: str
) -> Callable[[Array], Array]:
    """x [..., M, d] -> phi(x) [..., M, m] for landmarks [..., m, d] of which keep [..., m, 1] (None: all) are there."""
    if root not in ROOTS:
        raise ValueError(f"unknown root {root!r}: expected one of {', '.join(ROOTS)}")
    gram = kernel(landmarks, landmarks)
    m, diagonal = gram.shape[-1], jnp.diagonal(gram, axis1=-2, axis2=-1)[..., None]
    there = jnp.ones((m, 1), bool) if keep is None else keep > 0
    jitter = 10 * m * jnp.finfo(gram.dtype).eps if jitter is None else jitter
    unit = regression.mean(diagonal, there.astype(gram.dtype))
    # An absent landmark has a row of the unit matrix.
    gram = jnp.where(there & transpose(there), gram, 0)
    gram = gram + jnp.where(there, jitter * lax.stop_gradient(unit), 1) * jnp.eye(m, dtype=gram.dtype)
    apply_root = ROOTS[root](gram)
    return lambda x: apply_root(jnp.where(transpose(there), kernel(x, landmarks), 0))


def nystroem_intention(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    alpha: float | Array = 1e-3,
    kernel: str | Callable = "gaussian",
    gamma: float | Array | str = "variance",
    landmarks: Array | int | None = None,
    rng: Array | None = None,
    jitter: float | None = None,
    root: str = "cholesky",
) -> Array:
    """phi(Q) (phi(K)'phi(K) + alpha I)^-1 phi(K)'V with the m Nystroem features phi: time O(N m^2 + m^3) instead of O(N^3).

    Garnelo and Czarnecki 2023, Section 3.1; Williams and Seeger 2001. The paper names neither the number of landmarks nor
    their choice. With all keys as landmarks it is `kernel_intention`, up to jitter.

    Args:
        query: [..., M, d].
        key: [..., N, d].
        value: [..., N, k].
        mask: [..., N], or [..., M, N] for one regression per query; True = take part.
        alpha: a number >= 0, or an array > 0 that broadcasts against the leading dimensions.
        kernel, gamma: as `kernel_intention`; the rules for gamma see the keys.
        landmarks: points [m, d] or [..., m, d], which may be learnt; or a number m <= N: as many keys, drawn by `rng` without
            replacement among those the mask keeps (all of them if fewer are left); None: all keys. Drawn landmarks depend on
            the order of the keys.
        rng: a PRNG key, for a number of landmarks.
        jitter, root: as `whitening`.

    Returns:
        [..., M, k].

    Raises:
        ValueError: as `kernel_intention` and `whitening`; for a number of landmarks without rng or outside 1..N.
    """
    route = regression.checked_route(alpha, "auto")
    count = landmarks if isinstance(landmarks, int) else None
    if count is not None and (rng is None or not 1 <= count <= max(jnp.shape(key)[-2], 1)):
        raise ValueError(f"landmarks={count} of {jnp.shape(key)[-2]} keys: expected 1 to N, and rng= to draw them")
    given = landmarks is not None and count is None
    if given and (jnp.ndim(landmarks) < 2 or jnp.shape(landmarks)[-1] != jnp.shape(key)[-1]):
        raise ValueError(f"expected landmarks [..., m, {jnp.shape(key)[-1]}], got {jnp.shape(landmarks)}")

    def run(query, key, value, keep, alpha, gamma, *points):
        k = bind(kernel, gamma, key, keep)
        if points:
            chosen, there = points[0], None
        else:
            chosen, there = (key, keep) if count is None else draw(rng, key, keep, count)
        phi = whitener(chosen, there, k, jitter, root)
        return regression.predict(phi(query), regression.root(keep) * phi(key), value, alpha, route)

    return regression.fit(run, query, key, value, mask, scalars=(alpha, gamma), matrices=(landmarks,) if given else ())


def draw(rng: Array, key: Array, keep: Array | None, count: int) -> tuple[Array, Array | None]:
    """`count` of the keys [..., N, d], without replacement: [..., count, d], and which of them are there [..., count, 1] or None."""
    shape = key.shape[:-1] if keep is None else jnp.broadcast_shapes(key.shape[:-1], keep.shape[:-1])
    order = jax.random.uniform(rng, shape)
    order = order if keep is None else jnp.where(keep[..., 0] > 0, order, -1)
    _, index = lax.top_k(order, count)
    pick = lambda x: jnp.take_along_axis(jnp.broadcast_to(x, (*shape, x.shape[-1])), index[..., None], axis=-2)
    return pick(key), None if keep is None else pick(keep)


def _cholesky_root(gram: Array) -> Callable[[Array], Array]:
    inverse = transpose(linalg.inverse_triangle(linalg.cholesky(gram)))
    return lambda cross: matmul(cross, inverse)


def _symmetric_root(gram: Array) -> Callable[[Array], Array]:
    inverse = inverse_sqrt(gram)
    return lambda cross: matmul(cross, inverse)


ROOTS = {"cholesky": _cholesky_root, "symmetric": _symmetric_root}


@jax.custom_jvp
def inverse_sqrt(matrix: Array) -> Array:
    """matrix^-1/2 [..., n, n] of a symmetric positive definite matrix, by eigenvalues.

    Its derivative (Daleckii and Krein 1965) divides by sums of roots of eigenvalues, never by differences of eigenvalues as the
    derivative of eigenvectors does, and so is finite for repeated ones. Eigenvalues below n eps times the largest count as that.
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
