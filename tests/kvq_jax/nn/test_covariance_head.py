"""CovarianceHead: the two covariances by hand, absent targets, what the order of the targets changes."""

import jax
import numpy as np
import pytest

from kvq_jax.models.neural_processes import predictive
from kvq_jax.nn.covariance_head import COVARIANCES, CovarianceHead
from tests.kvq_jax.nn.drawing import draw, run, start

SMALL = dict(features=6, num_layers=1, num_heads=2, hidden=5, rank=3, projector_depth=2, diagonal_depth=2)
TARGETS, Y = draw(2, 4, 6, seed=1), draw(2, 4, 2, seed=2)
MASK = np.array([[1, 0, 1, 1], [0, 0, 0, 0]], bool)
P, MEAN, LOG = draw(4, 3, seed=3), draw(4, seed=4), draw(4, seed=5)


def head(**fields):
    return CovarianceHead(2, **SMALL, **fields)


JOINT = {name: lambda mean, of=of: of(mean, P, lambda: LOG, None, False, 0.1) for name, of in COVARIANCES.items()}
OF_POINTS = {
    of.__name__: lambda mean, of=of: of(mean, np.ones(mean.shape)) for of in (predictive.factorised, predictive.mixture)
}


@pytest.mark.parametrize("law", [*JOINT.values(), *OF_POINTS.values()], ids=[*JOINT, *OF_POINTS])
def test_arguments_are_validated_where_they_are_known(law):
    mean = MEAN if law in JOINT.values() else draw(3, 4, 2)
    wrong = np.full_like(mean, np.nan)
    law(mean)
    with pytest.raises(ValueError, match="invalid loc parameter"):
        law(wrong)
    assert np.isnan(jax.jit(lambda mean: law(mean).mean)(wrong)).all()


def test_cholesky_by_hand():
    gram = P @ P.T
    loose = COVARIANCES["cholesky"](MEAN, P, None, None, False, 0.0)
    np.testing.assert_allclose(loose.scale_tril, np.tril(gram), rtol=1e-5, atol=1e-6)
    bounded = np.tril(gram, -1) + np.diag(0.05 + 0.95 * np.tanh(np.diag(gram)))
    tight = COVARIANCES["cholesky"](MEAN, P, None, None, True, 0.0)
    np.testing.assert_allclose(tight.scale_tril, bounded, rtol=1e-5, atol=1e-6)
    jittered = COVARIANCES["cholesky"](MEAN, P, None, None, False, 0.1)
    np.testing.assert_allclose(jittered.scale_tril, np.tril(gram) + 0.1 * np.eye(4), rtol=1e-5, atol=1e-6)


def test_lowrank_by_hand():
    distribution = COVARIANCES["lowrank"](MEAN, P, lambda: LOG, None, False, 0.1)
    covariance = P @ P.T + np.diag(np.exp(LOG) + 0.1)
    np.testing.assert_allclose(distribution.covariance_matrix, covariance, rtol=1e-5, atol=1e-6)
    residual = -MEAN.astype(np.float64)
    density = -(residual @ np.linalg.solve(covariance, residual) + np.linalg.slogdet(2 * np.pi * covariance)[1]) / 2
    np.testing.assert_allclose(distribution.log_prob(np.zeros(4, np.float32)), density, rtol=1e-5)


@pytest.mark.parametrize("covariance, bound", [("cholesky", False), ("cholesky", True), ("lowrank", False)])
def test_an_absent_target_is_independent_with_variance_one(covariance, bound):
    module = head(covariance=covariance, bound=bound)
    variables = start(module, TARGETS)
    joint = run(module, variables, TARGETS, MASK)
    absent = np.repeat(~MASK, 2, axis=-1)
    for sigma, rows in zip(joint.covariance_matrix, absent):
        np.testing.assert_allclose(sigma[rows], np.eye(8)[rows], atol=1e-6)
    # So it can be divided out: what is left is the density without it, and 1 if nobody is there.
    kept = MASK[0]
    alone = run(module, variables, TARGETS[0, kept])
    density = predictive.log_prob(joint, Y, MASK)
    np.testing.assert_allclose(density[0], alone.log_prob(Y[0, kept].reshape(-1)), rtol=1e-4)
    np.testing.assert_allclose(density[1], 0, atol=1e-5)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_order_of_targets(covariance):
    """The low-rank density is one of a set of targets; tril(P P') is not, by far."""
    module, order = head(covariance=covariance), [2, 0, 3, 1]
    variables = start(module, TARGETS)
    densities = [
        predictive.log_prob(run(module, variables, TARGETS[:, rows]), Y[:, rows], None) for rows in (slice(None), order)
    ]
    same = np.isclose(*densities, rtol=1e-3)
    assert same.all() if covariance == "lowrank" else not same.any()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradients_are_finite_also_with_nobody_there(covariance):
    module = head(covariance=covariance)
    variables = start(module, TARGETS)

    def loss(variables):
        return predictive.log_prob(module.apply(variables, TARGETS, MASK), Y, MASK).sum()

    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.jit(jax.grad(loss))(variables)))


def test_only_lowrank_has_a_diagonal_net():
    nets = {"mean_net", "std_encoder", "projector"}
    assert start(head(), TARGETS)["params"].keys() == nets
    assert start(head(covariance="lowrank"), TARGETS)["params"].keys() == nets | {"diag_net"}


def test_refusals():
    for module, match in [
        (head(covariance="low_rank"), "unknown covariance 'low_rank'.*'lowrank'"),
        (head(covariance="lowrank", bound=True), "Cholesky"),
        (CovarianceHead(num_heads=4), "64"),
        (CovarianceHead(features=6, num_heads=4), "num_heads=4 does not divide"),
    ]:
        with pytest.raises(ValueError, match=match):
            jax.eval_shape(module.init, jax.random.key(0), TARGETS)
