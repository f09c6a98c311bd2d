"""Mixtures of Gaussians against SciPy and scikit-learn; a step of EM never lowers the likelihood."""

import jax
import numpy as np
import pytest
import scipy.stats
from sklearn.mixture import GaussianMixture

from kvq_jax.models.mixture import Mixture, em_step, log_joint, log_likelihood, mixture_of

RNG = np.random.default_rng(0)
K, N = 3, 40
LOG_WEIGHT = np.log(RNG.dirichlet(np.ones(K))).astype(np.float32)
MIXTURE = Mixture(LOG_WEIGHT, np.float32(RNG.normal(size=(K, 2))), np.float32(RNG.uniform(0.3, 2, (K, 2))))
X = np.float32(2 * RNG.normal(size=(N, 2)))


def scipys(mixture, x):
    laws = [scipy.stats.multivariate_normal(mean, np.diag(std**2)) for mean, std in zip(*map(np.float64, mixture[1:]))]
    return np.stack([law.logpdf(x) for law in laws], -1) + mixture.log_weight


def test_the_likelihood_is_scipys():
    expected = scipys(MIXTURE, X)
    np.testing.assert_allclose(log_joint(MIXTURE, X), expected, rtol=1e-5, atol=1e-5)
    mean = np.log(np.exp(expected).sum(-1)).mean()
    np.testing.assert_allclose(log_likelihood(MIXTURE, X), mean, rtol=1e-5)


def test_a_step_of_em_is_scikit_learns():
    """scikit-learn's one iteration from the same parameters, without its regularisation."""
    their = GaussianMixture(
        K,
        covariance_type="diag",
        reg_covar=0,
        max_iter=1,
        weights_init=np.exp(np.float64(LOG_WEIGHT)) / np.exp(np.float64(LOG_WEIGHT)).sum(),
        means_init=MIXTURE.mean,
        precisions_init=1 / np.float64(MIXTURE.std) ** 2,
    )
    with pytest.warns(Warning, match="did not converge"):
        their.fit(np.float64(X))
    ours = em_step(MIXTURE, X)
    np.testing.assert_allclose(np.exp(ours.log_weight), their.weights_, rtol=1e-4)
    np.testing.assert_allclose(ours.mean, their.means_, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.std**2, their.covariances_, rtol=1e-4)


def test_em_never_lowers_the_likelihood():
    """From 300 mixtures, good and absurd: far from all points, narrow, on one point; ragged sets."""
    rng = np.random.default_rng(1)
    count = 300
    scale = 10.0 ** rng.uniform(-2, 1.5, (count, 1, 1))
    mixtures = Mixture(
        np.float32(np.log(rng.dirichlet(np.ones(4), count))),
        np.float32(rng.normal(size=(count, 4, 2)) * 10.0 ** rng.uniform(-1, 2, (count, 1, 1))),
        np.float32(np.maximum(1e-3, scale * rng.uniform(0.5, 2, (count, 4, 2)))),
    )
    x = np.float32(rng.normal(size=(count, N, 2)) * 2)
    mask = np.arange(N) < rng.integers(1, N + 1, (count, 1))

    @jax.jit
    def climb(mixture, x, mask):
        found = [log_likelihood(mixture, x, mask)]
        for _ in range(3):
            mixture = em_step(mixture, x, mask)
            found.append(log_likelihood(mixture, x, mask))
        return np.array(0) if not found else jax.numpy.stack(found), mixture

    values, last = climb(mixtures, x, mask)
    values = np.asarray(values)
    assert np.isfinite(values).all() and all(np.isfinite(part).all() for part in last)
    assert (np.diff(values, axis=0) >= -1e-4 * np.maximum(1, np.abs(values[:-1]))).all()
    assert (np.diff(values, axis=0) > 1e-3).mean() > 0.5
    np.testing.assert_allclose(np.exp(last.log_weight).sum(-1), 1, rtol=1e-4)


def test_absent_points_are_absent():
    mask = np.arange(N) % 3 > 0
    garbage = np.where(mask[:, None], X, 50).astype(np.float32)
    np.testing.assert_allclose(log_likelihood(MIXTURE, garbage, mask), log_likelihood(MIXTURE, X[mask]), rtol=1e-5)
    for masked, alone in zip(em_step(MIXTURE, garbage, mask), em_step(MIXTURE, X[mask])):
        np.testing.assert_allclose(masked, alone, rtol=1e-4, atol=1e-5)
    nothing = np.zeros(N, bool)
    assert log_likelihood(MIXTURE, X, nothing) == 0
    assert all(np.isfinite(part).all() for part in em_step(MIXTURE, X, nothing))


def test_what_absent_points_hold_reaches_neither_numbers_nor_gradients():
    mask = np.arange(N) % 3 > 0
    spoilt = np.where(mask[:, None], X, np.nan)

    @jax.jit
    def run(x):
        step = lambda mean: sum(part.sum() for part in em_step(MIXTURE._replace(mean=mean), x, mask))
        likely = lambda mean: log_likelihood(MIXTURE._replace(mean=mean), x, mask)
        return [jax.value_and_grad(of)(MIXTURE.mean) for of in (step, likely)]

    jax.tree.map(np.testing.assert_array_equal, run(spoilt), run(np.where(mask[:, None], X, 0)))


def test_the_gradient_of_a_component_of_one_point_is_finite():
    step = lambda mean: em_step(MIXTURE._replace(mean=mean), np.zeros((4, 2), np.float32)).std.sum()
    assert np.isfinite(jax.jit(jax.grad(step))(MIXTURE.mean)).all()


def test_a_component_without_points_keeps_its_place():
    far = MIXTURE._replace(mean=MIXTURE.mean + np.float32([[0], [0], [1e3]]))
    after = em_step(far, X)
    np.testing.assert_array_equal(after.mean[2], far.mean[2])
    np.testing.assert_array_equal(after.std[2], far.std[2])
    assert after.log_weight[2] < -20


def test_what_a_network_says_is_a_mixture():
    rows = np.float32(RNG.normal(size=(7, K, 5)))
    mixture = mixture_of(rows, 2)
    np.testing.assert_allclose(np.exp(mixture.log_weight), jax.nn.softmax(rows[..., 0]), rtol=1e-5)
    np.testing.assert_array_equal(mixture.mean, rows[..., 1:3])
    np.testing.assert_allclose(mixture.std, np.log1p(np.exp(rows[..., 3:])), rtol=1e-4)
    isotropic = mixture_of(rows[..., :4], 2)
    np.testing.assert_array_equal(isotropic.std[..., 0], isotropic.std[..., 1])
    with pytest.raises(ValueError, match=r"6 numbers for a component of 2 dimensions: expected \(5, 4\)"):
        mixture_of(np.zeros((K, 6)), 2)


def test_without_points_the_likelihood_is_0():
    assert log_likelihood(MIXTURE, X[:0]) == log_likelihood(MIXTURE, X, np.zeros(N, bool)) == 0


def test_without_points_the_mixture_stays():
    two = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), MIXTURE)
    found = em_step(two, np.stack([X, X]), np.arange(N)[None] < np.array([[N], [0]]))
    jax.tree.map(lambda own, before: np.testing.assert_array_equal(own[1], before), found, MIXTURE)
    jax.tree.map(lambda own, alone: np.testing.assert_allclose(own[0], alone, rtol=1e-6), found, em_step(MIXTURE, X))
