"""The solves: accuracy against float64, gradients, batches, and the pseudo-inverse at its hard points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import linalg

from kvq_jax.ops import OPS
from kvq_jax.ops import linalg as kvq_linalg

SOLVE = jax.jit(kvq_linalg.solve)


def system(n, condition, seed=0):
    """A symmetric positive definite float64 matrix [n, n] of a given condition number."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (basis * np.logspace(0, -np.log10(condition), n)) @ basis.T


def test_a_batch_of_library_calls_is_a_loop():
    """On two cores, independent batches in one program used to wait for ever: see linalg.one_at_a_time."""
    matrices = jnp.stack([jnp.asarray(system(12, 10, seed), jnp.float32) for seed in range(6)]).reshape(2, 3, 12, 12)
    rhs = jnp.ones((2, 1, 12, 2))

    def solve(matrices, rhs):
        return kvq_linalg.solve(matrices, rhs)

    each = jnp.stack([jnp.stack([solve(m, r[0]) for m in row]) for row, r in zip(matrices, rhs)])
    for found in (
        solve(matrices, rhs),
        jax.vmap(solve)(matrices, rhs),
        jax.vmap(solve, (0, None))(matrices, rhs[0]),
        jax.vmap(jax.vmap(solve, (0, None)), (0, 0))(matrices, rhs[:, 0]),
    ):
        np.testing.assert_allclose(found, each, rtol=1e-5)
    assert "while" in jax.jit(solve).lower(matrices, rhs).as_text()


def test_gram_in_blocks(x64):
    rows = np.random.default_rng(0).normal(size=(kvq_linalg.BLOCKED + 1, 3))  # uneven halves
    np.testing.assert_allclose(kvq_linalg.gram(jnp.asarray(rows)), rows @ rows.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 16, 17, 64, 100, 129, 300])  # one block, blocks, halves of uneven size
def test_solves_in_float64(n, x64):
    matrix, rhs = system(n, 1e3), np.random.default_rng(1).normal(size=(n, 3))
    out = SOLVE(matrix, rhs)
    np.testing.assert_allclose(out, np.linalg.solve(matrix, rhs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [48, 300])
@pytest.mark.parametrize("condition", [1e2, 1e4, 1e5])
def test_float32_is_as_accurate_as_the_library(n, condition):
    matrix = system(n, condition).astype(np.float32)
    rhs = np.random.default_rng(1).normal(size=(n, 8)).astype(np.float32)
    exact = np.linalg.solve(matrix.astype(np.float64), rhs.astype(np.float64))
    library = linalg.cho_solve(linalg.cho_factor(matrix), rhs)
    error = lambda x: np.linalg.norm(np.asarray(x, np.float64) - exact) / np.linalg.norm(exact)
    ours = error(SOLVE(matrix, rhs))
    assert ours <= 2 * error(library) + 1e-6
    assert ours <= 4 * np.finfo(np.float32).eps * condition


@pytest.mark.parametrize("n", [5, 140])
def test_leading_dimensions_broadcast(n, x64):
    matrix = jnp.stack([jnp.asarray(system(n, 1e2, seed)) for seed in range(2)])
    rhs = jnp.asarray(np.random.default_rng(1).normal(size=(3, 1, n, 2)))
    expected = np.linalg.solve(np.broadcast_to(matrix, (3, 2, n, n)), np.broadcast_to(rhs, (3, 2, n, 2)))
    np.testing.assert_allclose(SOLVE(matrix, rhs), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(jax.vmap(SOLVE)(matrix, rhs[:2, 0]), expected[[0, 1], [0, 1]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [3, 140])
def test_gradients_are_two_more_solves(n, x64):
    matrix, rhs = jnp.asarray(system(n, 10.0)), jnp.asarray(np.random.default_rng(1).normal(size=(n, 2)))
    symmetric = lambda a: a + a.T
    run = jax.jit(lambda a, b: kvq_linalg.solve(symmetric(a), b))
    check_grads(run, (matrix, rhs), order=1, modes=["rev"], atol=1e-4, rtol=1e-4)
    inverse, cotangent = np.linalg.inv(matrix), np.random.default_rng(2).normal(size=(n, 2))
    grads = jax.jit(jax.grad(lambda a, b: (kvq_linalg.solve(a, b) * cotangent).sum(), argnums=(0, 1)))(matrix, rhs)
    np.testing.assert_allclose(grads[1], inverse @ cotangent, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(grads[0], -(inverse @ cotangent) @ (inverse @ rhs).T, rtol=1e-8, atol=1e-10)


def test_second_derivatives(x64):
    matrix, rhs = jnp.asarray(system(3, 10.0)), jnp.ones((3, 1))
    run = jax.jit(lambda a, b: kvq_linalg.solve(a @ a.T + jnp.eye(3), b))
    check_grads(run, (matrix, rhs), order=2, modes=["rev"], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]],
        [[0.0, 0.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    ],
)
def test_pinv_and_its_gradient_are_finite(rows, x64):
    matrix = jnp.array(rows)  # repeated singular values, zeros, rank one, full rank
    np.testing.assert_allclose(kvq_linalg.pinv(matrix), np.linalg.pinv(matrix), rtol=1e-10, atol=1e-10)
    assert np.isfinite(jax.jit(jax.jacobian(kvq_linalg.pinv))(matrix)).all()


def test_pinv_gradient_at_full_rank(x64):
    matrix = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    check_grads(jax.jit(kvq_linalg.pinv), (matrix,), order=1, modes=["rev"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "inputs, expected",
    [
        ((jnp.bfloat16,), ("bfloat16", "float32")),
        ((jnp.int32,), ("float32", "float32")),
        ((jnp.bfloat16, jnp.float32), ("float32", "float32")),
    ],
)
def test_dtypes(inputs, expected):
    assert tuple(map(str, kvq_linalg.dtypes(*(jnp.ones((), t) for t in inputs)))) == expected


def test_cholesky_is_the_librarys_with_its_gradient(x64):
    matrices = jnp.stack([jnp.asarray(system(7, 10, seed)) for seed in range(3)])
    np.testing.assert_allclose(kvq_linalg.cholesky(matrices), np.linalg.cholesky(matrices), rtol=1e-12, atol=1e-14)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=matrices.shape))

    def scalar(factor):
        return lambda matrix: (jnp.sin(weights * factor(matrix))).sum()

    ours, theirs = (jax.grad(scalar(factor))(matrices) for factor in (kvq_linalg.cholesky, jnp.linalg.cholesky))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    check_grads(scalar(kvq_linalg.cholesky), (matrices,), order=2, modes=("fwd", "rev"), rtol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_batch_of_factors_is_as_accurate_as_the_library(dtype, x64):
    """Between products, which must compile beside LAPACK's layout; only the matrix that has no factor is NaN."""
    matrices = np.stack([system(44, 1e3, seed) for seed in range(6)]).astype(dtype).reshape(2, 3, 44, 44)
    matrices[1, 2] *= -1
    doubled = jax.jit(lambda m: kvq_linalg.matmul(kvq_linalg.cholesky(m + m), jnp.eye(44, dtype=m.dtype)))(matrices)
    *found, last = (doubled / dtype(2**0.5)).reshape(6, 44, 44)
    assert doubled.dtype == dtype and np.isnan(last).any()

    def error(lower, matrix):
        return np.linalg.norm(np.float64(lower) @ np.float64(lower).T - matrix)

    for ours, matrix in zip(found, matrices.reshape(6, 44, 44)):
        assert error(ours, matrix) <= 2 * error(np.linalg.cholesky(matrix), matrix) + 4 * np.finfo(dtype).eps
    assert kvq_linalg.cholesky(jnp.zeros((0, 3, 3))).shape == (0, 3, 3)


@pytest.mark.parametrize("n", [12, 200])
def test_a_matrix_that_rounding_made_indefinite_is_lifted_and_no_other(n):
    """At condition 1e12 in float32: the answer is that of a diagonal larger by 10 n eps, whatever the units of rows.

    A matrix beside it in a batch keeps its bits, and one that is indefinite for good has no answer.
    """
    units = np.logspace(0, 3, n)
    hard = np.float32(units[:, None] * system(n, 1e12) * units)
    assert np.linalg.eigvalsh(hard.astype(np.float64))[0] < 0
    easy, none = np.float32(system(n, 10)), np.float32(-np.eye(n))
    rhs = hard @ np.ones((n, 8), np.float32)
    found = SOLVE(jnp.stack([hard, easy, none]), rhs)
    np.testing.assert_array_equal(found[1], SOLVE(jnp.stack([easy, easy, easy]), rhs)[1])
    np.testing.assert_array_equal(found, jax.vmap(SOLVE, (0, None))(jnp.stack([hard, easy, none]), rhs))
    assert np.isfinite(found[0]).all() and not np.isfinite(found[2]).any()
    lift = 10 * n * np.finfo(np.float32).eps * np.diag(hard)
    scale = np.sqrt(np.diag(hard))[:, None]
    residual = (hard.astype(np.float64) @ np.float64(found[0]) - rhs) / scale
    assert np.linalg.norm(residual) <= 3 * np.linalg.norm(lift[:, None] * found[0] / scale)


@pytest.mark.parametrize("name", ["intention", "ls_svm", "lda", "within_class", "qda", "sigma_intention"])
def test_one_key_that_is_far_longer_than_the_others_leaves_numbers(name):
    """Its square is 1e12 times theirs and the ridge: beyond 1 / eps of float32, in either route."""
    rng = np.random.default_rng(0)
    key, query = np.float32(rng.normal(size=(6, 8))), np.float32(rng.normal(size=(3, 8)))
    key[2] *= 1e6
    value = np.float32(np.eye(2)[[0, 1, 0, 1, 0, 1]])
    for route in ("primal", "dual"):
        options = {} if name == "qda" else {"route": route}
        assert np.isfinite(OPS[name](query, key, value, alpha=1e-6, **options)).all()
