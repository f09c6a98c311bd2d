"""Kernels, kernel Intention, whitening and Nystroem: scikit-learn, identities, laws, gradients at hard points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import pairwise

from kvq_jax.ops import discriminants, features, intention, kernels
from kvq_jax.ops.features import nystroem_intention, whitening
from kvq_jax.ops.kernels import BANDWIDTHS, KERNELS, kernel_intention
from tests.kvq_jax.ops.gradients import check_gradients
from tests.kvq_jax.ops.reference import close

every_kernel = pytest.mark.parametrize("kernel", KERNELS)
both_ops = pytest.mark.parametrize("op", [kernel_intention, nystroem_intention])


@functools.cache
def jit(op, **options):
    return jax.jit(functools.partial(op, **options))


def draw(m=4, n=6, d=3, k=2, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=s), dtype) for s in ((m, d), (n, d), (n, k))]


ORACLES = {
    "linear": pairwise.linear_kernel,
    "polynomial": functools.partial(pairwise.polynomial_kernel, gamma=0.6, degree=3, coef0=1),
    "gaussian": functools.partial(pairwise.rbf_kernel, gamma=0.6),
    "laplacian": functools.partial(pairwise.laplacian_kernel, gamma=0.6),
    "matern12": Matern(1.2**-0.5, nu=0.5),
    "matern32": Matern(1.2**-0.5, nu=1.5),
    "matern52": Matern(1.2**-0.5, nu=2.5),
}


@every_kernel
def test_kernels_are_scikit_learns(kernel, x64):
    x, y, _ = draw()
    y = y.at[0].set(x[0])
    close(jax.jit(KERNELS[kernel].call)(x, y, 0.6), ORACLES[kernel](np.asarray(x), np.asarray(y)), 1e-12)


def test_rules_for_the_width(x64):
    _, key, _ = draw(n=7)
    keep = jnp.arange(7)[:, None] < 5
    some = np.asarray(key)[:5]
    variance, pairs = some.var(0).mean(), np.triu_indices(5, 1)
    square = ((some[:, None] - some) ** 2).sum(-1)[pairs]
    absolute = np.abs(some[:, None] - some).sum(-1)[pairs]
    rule = lambda name, kernel: jax.jit(functools.partial(BANDWIDTHS[name], KERNELS[kernel]))(key, keep)
    close(rule("variance", "gaussian"), [[1 / (3 * variance)]])
    close(rule("variance", "laplacian"), [[1 / (3 * variance**0.5)]])
    close(rule("median", "gaussian"), [[1 / (2 * np.median(square))]])
    close(rule("median", "laplacian"), [[1 / np.median(absolute)]])
    assert BANDWIDTHS["median"](KERNELS["gaussian"], key[:1], None) == 0.5  # one key: any finite width
    assert BANDWIDTHS["variance"](KERNELS["gaussian"], key[:1], None) == 1 / 3
    centred = key - key.mean(0)  # then ours is scikit-learn's gamma='scale'
    close(BANDWIDTHS["variance"](KERNELS["gaussian"], centred, None), [[1 / (3 * centred.var())]])


@pytest.mark.parametrize("kernel", ["linear", "polynomial", "gaussian", "laplacian"])
def test_kernel_intention_is_scikit_learn_kernel_ridge(kernel, x64):
    q, k, v = draw()
    names = {"gaussian": "rbf", "polynomial": "poly"}
    oracle = KernelRidge(alpha=0.3, kernel=names.get(kernel, kernel), gamma=0.6, degree=3, coef0=1).fit(k, v)
    close(jit(kernel_intention, kernel=kernel, alpha=0.3, gamma=0.6)(q, k, v), oracle.predict(q))
    close(
        jit(kernel_intention, kernel=kernel, alpha=0.3, gamma=0.6)(q[:1], k, v), oracle.predict(q[:1])
    )  # the other side


@pytest.mark.parametrize(
    "kernel, prior", [("gaussian", RBF(1.2**-0.5, "fixed")), ("matern52", Matern(1.2**-0.5, "fixed", 2.5))]
)
def test_kernel_intention_is_the_posterior_mean_of_a_gaussian_process(kernel, prior, x64):
    q, k, v = draw()
    oracle = GaussianProcessRegressor(prior, alpha=0.3, optimizer=None).fit(k, v)
    close(jit(kernel_intention, kernel=kernel, alpha=0.3, gamma=0.6)(q, k, v), oracle.predict(q))


def test_linear_kernel_is_intention(x64):
    q, k, v = draw()
    close(jit(kernel_intention, kernel="linear", alpha=0.3)(q, k, v), jit(intention, alpha=0.3)(q, k, v))
    own = lambda x, y: x @ y.mT
    close(jit(kernel_intention, kernel=own, alpha=0.3)(q, k, v), jit(intention, alpha=0.3)(q, k, v))


def test_no_ridge_interpolates(x64):
    _, k, v = draw()
    close(jit(kernel_intention, alpha=0)(k, k, v), v, 1e-6)


@pytest.mark.parametrize(
    "op",
    [functools.partial(kernel_intention, alpha=0), functools.partial(nystroem_intention, landmarks=None, alpha=1e-6)],
)
def test_absent_keys_move_no_cut_off(op):
    """A thousand of them, and near-singular systems in float32: the predictions are those without them."""
    rng = np.random.default_rng(0)
    key = np.float32(np.sort(rng.uniform(-2, 2, (12, 1)), 0))
    query, value = (
        np.float32(np.linspace(-2, 2, 5)[:, None]),
        np.sin(2 * key) + np.float32(0.1 * rng.normal(size=(12, 1))),
    )
    more = lambda rows: np.concatenate([rows, np.full((1000, 1), 7, np.float32)])
    run = jax.jit(functools.partial(op, gamma=1.0))
    alone, among = run(query, key, value), run(query, more(key), more(value), mask=jnp.arange(1012) < 12)
    np.testing.assert_allclose(among, alone, atol=0.02)


# Whitening


@pytest.mark.parametrize("root", features.ROOTS)
def test_linear_whitening_identity(root, x64):
    q, k, v = draw(n=5, d=7)
    phi = jax.jit(lambda x: whitening(x, k, kernel="linear", jitter=0.0, root=root))
    close(phi(k) @ phi(k).T, k @ k.T)
    close(
        jit(intention, alpha=0.3, route="primal")(phi(q), phi(k), v), jit(intention, alpha=0.3, route="dual")(q, k, v)
    )
    if root == "symmetric":
        close(phi(q), q @ k.T @ linalg.inv(linalg.sqrtm(np.asarray(k @ k.T))), 1e-8)


@pytest.mark.parametrize("root, kernel", [("cholesky", "gaussian"), ("symmetric", "matern32")])
def test_intention_on_whitened_features_is_kernel_intention(kernel, root, x64):
    q, k, v = draw()
    mask = jnp.arange(6) != 2
    phi = jax.jit(lambda x: whitening(x, k, mask=mask, kernel=kernel, gamma="median", root=root))
    expected = jit(kernel_intention, kernel=kernel, gamma="median", alpha=0.3)(q, k, v, mask=mask)
    close(jit(intention, alpha=0.3)(phi(q), phi(k), v, mask=mask), expected)
    close(phi(q)[:, 2], 0)
    kept = np.array([0, 1, 3, 4, 5])
    close(phi(q)[:, kept], jit(whitening, kernel=kernel, gamma="median", root=root)(q, k[kept]), 1e-8)


def test_discriminants_take_kernels(x64):
    q, k, _ = draw(n=12)
    v = jnp.eye(2)[(jnp.square(k).sum(-1) > 2.5).astype(int)]  # a circle: no linear boundary
    phi = jax.jit(lambda x: whitening(x, k))
    scores = jax.jit(functools.partial(discriminants.within_class, alpha=1e-3))(phi(k), phi(k), v)
    close(jnp.argmax(scores, -1), jnp.argmax(v, -1))


# Nystroem


def test_nystroem_with_all_keys_is_exact(x64):
    q, k, v = draw()
    exact = jit(kernel_intention, alpha=0.3)(q, k, v)
    for root in features.ROOTS:
        close(jit(nystroem_intention, alpha=0.3, root=root)(q, k, v), exact)
    close(jit(nystroem_intention, alpha=0.3)(q, k, v, landmarks=k[::-1]), exact)
    close(jit(nystroem_intention, alpha=0.3, landmarks=6)(q, k, v, rng=jax.random.key(0)), exact)


def test_nystroem_is_subset_of_regressors(x64):
    q, k, v = draw()
    landmarks, gamma, alpha = k[:3], 0.6, 0.3
    kernel = functools.partial(pairwise.rbf_kernel, gamma=gamma)
    to_keys = kernel(k, landmarks)
    weights = np.linalg.solve(to_keys.T @ to_keys + alpha * kernel(landmarks), to_keys.T @ v)
    close(
        jit(nystroem_intention, alpha=alpha, gamma=gamma)(q, k, v, landmarks=landmarks), kernel(q, landmarks) @ weights
    )


def test_random_landmarks_are_kept_keys(x64):
    _, k, v = draw()
    keep = jnp.array([1, 0, 1, 1, 0, 0], bool)
    for seed in range(4):
        chosen, there = features.random_landmarks(jax.random.key(seed), k, keep[:, None], 3)
        assert there.all() and sorted(map(tuple, np.asarray(chosen))) == sorted(map(tuple, np.asarray(k[keep])))
    _, there = features.random_landmarks(jax.random.key(0), k, keep[:, None], 5)
    assert there.sum() == 3
    out = jit(nystroem_intention, alpha=0.3, landmarks=5)(k, k, v, mask=keep, rng=jax.random.key(0))
    close(out, jit(kernel_intention, alpha=0.3)(k, k, v, mask=keep))  # all three that are left


def test_landmarks_learn():
    q, k, v = draw(n=30, dtype=np.float32)
    loss = jax.jit(
        jax.value_and_grad(lambda x: jnp.mean((nystroem_intention(k, k, v, landmarks=x, gamma=0.5) - v) ** 2))
    )
    landmarks = k[:4]
    before = loss(landmarks)[0]
    for _ in range(20):
        landmarks = landmarks - 0.3 * loss(landmarks)[1]
    assert loss(landmarks)[0] < before


# Laws


@both_ops
def test_laws(op, x64):
    q, k, v = draw()
    op = jit(op, alpha=0.3)
    rows, queries = np.random.default_rng(0).permutation(6), np.array([2, 0, 3, 1])
    close(op(q[queries], k[rows], v[rows]), op(q, k, v)[queries])
    keep = np.array([1, 0, 1, 1, 0, 1], bool)
    spoil = jnp.where(keep, 0.0, jnp.nan)[:, None]
    close(op(q, k + spoil, v + spoil, mask=jnp.asarray(keep)), op(q, k[keep], v[keep]))
    pairs = np.array([keep, ~keep, np.zeros(6), np.ones(6)]).astype(bool)
    expected = [op(q, k, v, mask=jnp.asarray(row))[i] for i, row in enumerate(pairs)]
    close(op(q, k, v, mask=jnp.asarray(pairs)), expected)
    assert not np.asarray(expected[2]).any()


@pytest.mark.parametrize(
    "op, kernel",
    [
        (kernel_intention, "gaussian"),
        (kernel_intention, "matern12"),
        (nystroem_intention, "gaussian"),
        (nystroem_intention, "laplacian"),
    ],
)
def test_duplicate_points_and_empty_masks_have_finite_gradients(op, kernel):
    q, k, v = draw(dtype=np.float32)
    k = k.at[1].set(k[0]).at[2].set(k[0]).at[5].set(jnp.nan)
    q = q.at[0].set(k[0])

    @jax.jit
    def gradient(q, k, v, mask):
        return jax.grad(lambda *a: op(*a, kernel=kernel, gamma="median", mask=mask).sum(), argnums=(0, 1, 2))(q, k, v)

    for g in gradient(q, k, v, jnp.arange(6) < 5):
        assert np.isfinite(g).all() and np.asarray(g).any()
    for g in gradient(q, k, v, jnp.zeros(6, bool)):
        assert not np.asarray(g).any()
    for g in gradient(q, k, v, jnp.arange(6) < 3):  # one point, three times
        assert np.isfinite(g).all()


@both_ops
def test_batch_axes_are_loops(op, x64):
    q, k, v = (jnp.stack(x) for x in zip(*(draw(seed=seed) for seed in range(4))))
    mask = jnp.arange(6) < jnp.array([6, 4, 0, 3])[:, None]
    alpha, gamma = jnp.array([0.1, 0.5, 1.0, 3.0]), jnp.array([0.3, 0.5, 1.0, 0.7])
    op = jax.jit(op)
    loop = jnp.stack([op(*x[:3], mask=x[3], alpha=x[4], gamma=x[5]) for x in zip(q, k, v, mask, alpha, gamma)])
    close(op(q, k, v, mask=mask, alpha=alpha, gamma=gamma), loop)
    close(
        jax.jit(jax.vmap(lambda q, k, v, mask, a, g: op(q, k, v, mask=mask, alpha=a, gamma=g)))(
            q, k, v, mask, alpha, gamma
        ),
        loop,
    )
    close(op(q, k[0], v[0]), jnp.stack([op(x, k[0], v[0]) for x in q]))


@pytest.mark.parametrize(
    "op, kernel, gamma",
    [
        (kernel_intention, "gaussian", "variance"),
        (kernel_intention, "matern32", "median"),
        (kernel_intention, "polynomial", None),
        (nystroem_intention, "gaussian", None),
        (nystroem_intention, "laplacian", "variance"),
    ],
)
def test_gradients_against_finite_differences(op, kernel, gamma, x64):
    mask = jnp.arange(6) != 2
    if gamma is None:
        check_gradients(
            lambda q, k, v, a, g: op(q, k, v, mask=mask, alpha=a, gamma=g, kernel=kernel), *draw(seed=1), 0.3, 0.6
        )
    else:
        check_gradients(
            lambda q, k, v, a: op(q, k, v, mask=mask, alpha=a, gamma=gamma, kernel=kernel), *draw(seed=1), 0.3
        )


def test_symmetric_root_has_a_gradient_at_repeated_eigenvalues(x64):
    rng = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    matrix = jnp.asarray(rotation * np.array([2.0, 2.0, 2.0, 0.5]) @ rotation.T)
    inverse_sqrt = jax.jit(features.inverse_sqrt)
    close(inverse_sqrt(matrix) @ inverse_sqrt(matrix) @ matrix, np.eye(4))
    change = rng.normal(size=(4, 4))
    change = jnp.asarray(change + change.T)
    step = 1e-5
    numeric = (inverse_sqrt(matrix + step * change) - inverse_sqrt(matrix - step * change)) / (2 * step)
    close(jax.jit(lambda x, u: jax.jvp(inverse_sqrt, (x,), (u,))[1])(matrix, change), numeric, 1e-8)
    gradient = jax.jit(jax.grad(lambda x: (inverse_sqrt(x) * change).sum()))(matrix)
    close((gradient * change).sum(), (numeric * change).sum(), 1e-8)
    assert np.isfinite(jax.jit(jax.grad(lambda x: inverse_sqrt(x).sum()))(jnp.eye(4))).all()


@both_ops
def test_low_precision_in_low_precision_out(op):
    q, k, v = draw(dtype=jnp.bfloat16)
    out = jit(op, alpha=0.3)(q, k, v)
    assert out.dtype == jnp.bfloat16
    close(out.astype(jnp.float32), jit(op, alpha=0.3)(*(x.astype(jnp.float32) for x in (q, k, v))), 0.02)


def test_what_is_refused():
    q, k, v = draw(dtype=np.float32)
    for message, call in [
        ("unknown kernel 'gausian'", lambda: kernel_intention(q, k, v, kernel="gausian")),
        ("unknown rule 'scale'", lambda: kernel_intention(q, k, v, gamma="scale")),
        ("gamma must be positive", lambda: kernel_intention(q, k, v, gamma=-1.0)),
        ("alpha must be >= 0", lambda: kernel_intention(q, k, v, alpha=-1.0)),
        ("kernels of a distance", lambda: kernel_intention(q, k, v, kernel="polynomial", gamma="median")),
        ("jitter must be at least 0", lambda: whitening(q, k, jitter=-1.0)),
        ("jitter must be at least 0", lambda: nystroem_intention(q, k, v, jitter=-1.0)),
        ("unknown root", lambda: whitening(q, k, root="square")),
        ("a mask over landmarks", lambda: whitening(q, k, mask=jnp.ones((4, 6), bool))),
        ("landmarks=0 of 6 keys", lambda: nystroem_intention(q, k, v, landmarks=0)),
        ("landmarks=7 of 6 keys", lambda: nystroem_intention(q, k, v, landmarks=7, rng=jax.random.key(0))),
        (r"expected landmarks \[..., m, 3\]", lambda: nystroem_intention(q, k, v, landmarks=jnp.ones((2, 4)))),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(KeyError):
        kernels.matern(q, k, 1.0, twice_nu=2)
    plain = kernel_intention(q, k, v, kernel="linear")
    for unused in ("median", -1.0):  # the linear kernel has no width
        np.testing.assert_array_equal(kernel_intention(q, k, v, kernel="linear", gamma=unused), plain)


@pytest.mark.parametrize("op, kernel, key", [(kernel_intention, "gaussian", 1e3), (nystroem_intention, "linear", 0.0)])
def test_keys_of_one_point_have_finite_gradients(op, kernel, key):
    """Float32 means of equal numbers are not these numbers."""
    q, k, v = draw(n=7, dtype=np.float32)
    k = jnp.broadcast_to(key * k[:1], k.shape)
    run = jax.jit(jax.value_and_grad(lambda *a: op(*a, kernel=kernel).sum(), argnums=(0, 1, 2)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run(q, k, v)))
    if key:  # the variance of one point counts as 1, d is 3
        assert BANDWIDTHS["variance"](KERNELS[kernel], k, None) == pytest.approx(1 / 3)
