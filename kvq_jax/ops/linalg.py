"""Linear algebra under least squares: Gram matrices, positive definite solves, pseudo-inverse; their precision."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

# TF32 or bfloat16 passes in K'K or K'V are amplified by the condition number of the system.
PRECISION = lax.Precision.HIGHEST
# Library substitutions with this many right-hand numbers or more run on several threads (OpenBLAS, on CPUs). Beside
# other processes those threads wait for one another: a call of 20 microseconds takes 10 milliseconds.
THREADED = 1024
# Systems of up to LEAF rows are solved with the inverse of their triangle, larger ones by halves. Triangles of up to
# BASE rows are inverted by one substitution with fewer than THREADED numbers.
LEAF, BASE = 64, math.isqrt(THREADED - 1)
# Of a product a'b with fewer columns than this, b is the one to transpose.
NARROW = 16
# Where a factorisation fails: what is added to the diagonal, in units of n eps times its entries.
LIFT = 10
# A Gram matrix of this many rows or more is made of blocks, so that only one of two equal blocks is multiplied out.
BLOCKED = 1024


def dtypes(*arrays: Array) -> tuple[jnp.dtype, jnp.dtype]:
    """(dtype of the output, dtype to compute in): what the arrays promote to, and the wider of that and float32."""
    out = jnp.result_type(*arrays)
    out = out if jnp.issubdtype(out, jnp.inexact) else jnp.promote_types(out, jnp.float32)
    return out, jnp.promote_types(out, jnp.float32)


def transpose(x: Array) -> Array:
    """Swaps the last two axes."""
    return jnp.swapaxes(x, -1, -2)


def left(x: Array) -> Array:
    """The transpose of x for the left of a product, laid out in memory: up to four times faster on a CPU."""
    return lax.optimization_barrier(transpose(x))


def cross(a: Array, b: Array) -> Array:
    """a' b, [..., n, m] and [..., n, k] -> [..., m, k], by laying out the transpose of the narrower."""
    return transpose(matmul(transpose(b), a)) if b.shape[-1] < NARROW else matmul(left(a), b)


def matmul(a: Array, b: Array) -> Array:
    """a @ b at the precision that the solves need."""
    return jnp.matmul(a, b, precision=PRECISION)


def gram(rows: Array) -> Array:
    """rows rows', [..., n, m] -> [..., n, n]."""
    n = rows.shape[-2]
    if n < BLOCKED:
        return matmul(rows, transpose(rows))
    first, second = rows[..., : n // 2, :], rows[..., n // 2 :, :]
    below = matmul(second, transpose(first))
    return jnp.concatenate(
        [jnp.concatenate([gram(first), transpose(below)], -1), jnp.concatenate([below, gram(second)], -1)], -2
    )


def solve(matrix: Array, rhs: Array) -> Array:
    """Solves matrix @ x = rhs for a symmetric positive definite matrix [..., n, n] and rhs [..., n, k], by Cholesky.

    Gradients are further solves with the same factor (lax.custom_linear_solve): nothing is differentiated through the
    factorisation. Nearly all of the work is matrix products, which on CPU run several times faster than library
    substitutions: the matrix is factored by halves, and triangles of at most LEAF rows are inverted (never the matrix
    itself). The error stays within that of library substitutions: tests/kvq_jax/ops/test_linalg.py.

    Returns [..., n, k]; leading dimensions broadcast. As long as eps times the condition number of the matrix is well
    below 1 (float32: a number of 1e6), that is the size of the relative error. Beyond it a factorisation may fail by
    rounding alone; it is then made again with 10 n eps of the diagonal added to the diagonal. The answer is that of a
    slightly larger ridge, finite and no longer accurate. It is not finite for a matrix that is farther from positive
    definite. Raises TypeError for a dtype below float32, which has no Cholesky factorisation.
    """
    return solver(matrix, rhs.shape[-1])(rhs)


def solver(matrix: Array, k: int) -> Callable[[Array], Array]:
    """rhs -> solve(matrix, rhs) for any number of rhs [..., n, k], with one factorisation."""
    fixed = lax.stop_gradient(matrix)
    if matrix.shape[-1] * k < THREADED:
        lower = _cholesky(fixed)
        substitute = lambda _, b: one_at_a_time(_substitute)(lower, b)
    else:
        factor = _factor(fixed, _lift(fixed))
        substitute = lambda _, b: _backward(factor, _forward(factor, b))

    def run(rhs):
        batch = jnp.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
        rhs = jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
        return lax.custom_linear_solve(lambda x: matmul(matrix, x), rhs, substitute, symmetric=True)

    return run


def pinv(matrix: Array, cut: float | None = None) -> Array:
    """Moore-Penrose pseudo-inverse [..., d, N] of matrix [..., N, d] by singular values.

    Singular values below `cut` eps times the largest count as zero; None: 10 d, which does not depend on N, so that
    rows of zeros (masked keys) change nothing. The gradient (Golub and Pereyra 1973, for constant rank) uses only the
    pseudo-inverse itself. It is finite for every matrix, also for zeros or repeated singular values.
    """
    cut = 10 * matrix.shape[-1] if cut is None else cut
    return jnp.linalg.pinv(matrix, rtol=cut * jnp.finfo(matrix.dtype).eps)


@jax.custom_jvp
def cholesky(matrix: Array) -> Array:
    """The lower triangular L [..., n, n] with L L' = A, the symmetric part of the matrix.

    Where rounding makes it fail, that of A + 10 n eps diag(A), see `solve`; NaN if that is not positive definite
    either. As jax.numpy.linalg.cholesky, by LAPACK calls that `one_at_a_time` makes safe. dL
    = L tril(L^-1 dA L^-T), half of the diagonal.
    """
    return _cholesky((matrix + transpose(matrix)) / 2)


@cholesky.defjvp
def _cholesky_jvp(primals, tangents):
    (matrix,), (tangent,) = primals, tangents
    lower = cholesky(matrix)
    inverse = inverse_triangle(lower)
    change = matmul(matmul(inverse, (tangent + transpose(tangent)) / 2), transpose(inverse))
    half = jnp.tril(change) - jnp.eye(change.shape[-1], dtype=change.dtype) * change / 2
    return lower, matmul(lower, half)


@jax.custom_jvp
def inverse_triangle(lower: Array) -> Array:
    """The inverse of a lower triangle [..., n, n]."""
    return _inverse(lower)


@inverse_triangle.defjvp
def _inverse_triangle_jvp(primals, tangents):
    inverse = inverse_triangle(*primals)
    return inverse, -matmul(matmul(inverse, *tangents), inverse)


def one_at_a_time(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of matrices [..., n, m] that calls LAPACK; on CPU a loop over the leading dimensions.

    Those of a vmap count too. jaxlib 0.10 spreads a batch of LAPACK calls over the threads of the running program and
    waits for them in one of these. A program with as many independent batches as threads, such as six layers with
    Intention on two cores, then waits for ever. A loop over calls of a few microseconds is no slower.
    """

    def loop(*arrays):
        batch = arrays[0].shape[:-2]
        if math.prod(batch) == 1:
            return function(*arrays)
        # Kept transposed, rows in memory are LAPACK's columns: nothing is copied for a call, and no product outside
        # gets that layout, which XLA cannot compile.
        flat = tuple(transpose(x).reshape(math.prod(batch), *x.shape[:-3:-1]) for x in arrays)
        out = lax.map(lambda each: transpose(function(*map(transpose, each))), flat)
        return transpose(out.reshape(*batch, *out.shape[1:]))

    loop = jax.custom_batching.custom_vmap(loop)  # the vmap of a loop would be a loop over batches

    @loop.def_vmap
    def batched(size, is_batched, *arrays):
        return loop(*(x if own else jnp.broadcast_to(x, (size, *x.shape)) for x, own in zip(arrays, is_batched))), True

    def run(*arrays):
        batch = jnp.broadcast_shapes(*(x.shape[:-2] for x in arrays))
        arrays = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in arrays)
        return lax.platform_dependent(*arrays, cpu=loop, default=function)

    return run


def one_task_at_a_time(function: Callable) -> Callable:
    """A function of one task that calls LAPACK; under vmap a loop over tasks on CPU, as in `one_at_a_time`."""
    loop = jax.custom_batching.sequential_vmap(function)
    return lambda *task: lax.platform_dependent(*task, cpu=loop, default=function)


@jax.custom_batching.custom_vmap
def _cholesky(matrix: Array, *lift: Array) -> Array:
    """L with L L' = A; where rounding leaves a pivot that is not positive, L L' = A + diag(lift), lift [..., n, 1]."""
    factored = one_at_a_time(functools.partial(lax.linalg.cholesky, symmetrize_input=False))
    lower = factored(transpose(matrix))
    failed = jnp.isnan(lower[..., :1, :1])

    def again():
        (more,) = lift or (_lift(matrix),)
        return jnp.where(
            failed, factored(transpose(matrix) + more * jnp.eye(matrix.shape[-1], dtype=more.dtype)), lower
        )

    return lax.cond(failed.any(), again, lambda: lower)


@_cholesky.def_vmap
def _cholesky_of_all(size, is_batched, *arrays):
    """At once: the vmap of a condition would factor every matrix twice."""
    return _cholesky(*(x if own else jnp.broadcast_to(x, (size, *x.shape)) for x, own in zip(arrays, is_batched))), True


def _lift(matrix: Array) -> Array:
    """What is added to the diagonal of a matrix [..., n, n] that cannot be factored, [..., n, 1].

    It is of the size of the rounding errors of the matrix, and follows its scale: a Gram matrix of rows or columns of
    different lengths is lifted as that of unit ones is.
    """
    n = matrix.shape[-1]
    return LIFT * n * jnp.finfo(matrix.dtype).eps * jnp.diagonal(matrix, axis1=-2, axis2=-1)[..., None]


def _triangular(lower: Array, b: Array, transpose_a: bool = False) -> Array:
    """L^-1 b, or L^-T b."""
    return lax.linalg.triangular_solve(lower, b, left_side=True, lower=True, transpose_a=transpose_a)


def _substitute(lower: Array, b: Array) -> Array:
    """L^-T L^-1 b."""
    return _triangular(lower, _triangular(lower, b), transpose_a=True)


def _inverse(lower: Array) -> Array:
    """Inverse of a lower triangle [..., n, n]: by halves down to BASE rows, then by one substitution."""
    n = lower.shape[-1]
    if n <= BASE:
        return one_at_a_time(_triangular)(lower, jnp.eye(n, dtype=lower.dtype))
    h = n // 2
    first, second = _inverse(lower[..., :h, :h]), _inverse(lower[..., h:, h:])
    block = -matmul(second, matmul(lower[..., h:, :h], first))
    top = jnp.concatenate([first, jnp.zeros((*first.shape[:-1], n - h), lower.dtype)], -1)
    return jnp.concatenate([top, jnp.concatenate([block, second], -1)], -2)


def _factor(matrix: Array, lift: Array):
    """Cholesky factor L as a tree: the inverse of L for a leaf, else (first half, lower left block, second half)."""
    n = matrix.shape[-1]
    if n <= LEAF:
        return _inverse(_cholesky(matrix, lift))
    h = n // 2
    first = _factor(matrix[..., :h, :h], lift[..., :h, :])
    block = _forward_right(first, matrix[..., h:, :h])
    second = _factor(matrix[..., h:, h:] - matmul(block, transpose(block)), lift[..., h:, :])
    return first, block, second


def _forward(factor, b: Array) -> Array:
    """L^-1 b."""
    if not isinstance(factor, tuple):
        return matmul(factor, b)
    first, block, second = factor
    h = block.shape[-1]
    top = _forward(first, b[..., :h, :])
    return jnp.concatenate([top, _forward(second, b[..., h:, :] - matmul(block, top))], -2)


def _backward(factor, b: Array) -> Array:
    """L^-T b."""
    if not isinstance(factor, tuple):
        return cross(factor, b)
    first, block, second = factor
    h = block.shape[-1]
    bottom = _backward(second, b[..., h:, :])
    return jnp.concatenate([_backward(first, b[..., :h, :] - cross(block, bottom)), bottom], -2)


def _forward_right(factor, b: Array) -> Array:
    """b L^-T."""
    if not isinstance(factor, tuple):
        return matmul(b, transpose(factor))
    first, block, second = factor
    h = block.shape[-1]
    start = _forward_right(first, b[..., :h])
    return jnp.concatenate([start, _forward_right(second, b[..., h:] - matmul(start, transpose(block)))], -1)
