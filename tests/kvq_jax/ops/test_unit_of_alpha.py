"""alpha in units of the mean eigenvalue of the Gram matrix, for every operator that has the option."""

import functools

import jax
import numpy as np
import pytest

from kvq_jax.nn import Mixer
from kvq_jax.ops import OPERATORS, OPS, constrained_weights, intention
from kvq_jax.ops.constraints import METHODS
from tests.kvq_jax.nn.drawing import run, start
from tests.kvq_jax.ops.reference import close

WITH_UNIT = [name for name, operator in OPERATORS.items() if "unit" in operator.options]
RIDGES = [name for name in WITH_UNIT if OPERATORS[name].alpha == "positive"]
QUERY, KEY, VALUE = (
    np.random.default_rng(seed).normal(size=size) for seed, size in enumerate([(3, 4), (6, 4), (6, 2)])
)
MASK = np.array([True, True, False, True, True, True])
EACH = np.stack([MASK, ~MASK, np.ones(6, bool)])  # a mask for each query


def mean_eigenvalue(name, rows):
    """By the eigenvalues; LS-SVM centres its keys."""
    return np.linalg.eigvalsh(np.cov(rows.T, bias=True) * len(rows) if name == "ls_svm" else rows.T @ rows).mean()


@functools.cache
def in_units(name):
    """(query, key, mask) -> output, for an alpha in units of the mean eigenvalue."""
    return jax.jit(lambda query, key, mask: OPS[name](query, key, VALUE, mask=mask, alpha=0.4, unit="trace"))


def test_every_least_squares_operator_has_it():
    family = {"intention", "sigma_intention", "informer", "sigma_informer", "constrained_intention", "ls_svm"}
    assert set(WITH_UNIT) == family


@pytest.mark.parametrize("name", RIDGES)
def test_is_the_mean_eigenvalue(name, x64):
    run = jax.jit(lambda alpha, unit: OPS[name](QUERY, KEY, VALUE, mask=MASK, alpha=alpha, unit=unit), static_argnums=1)
    close(run(0.3, "trace"), run(0.3 * mean_eigenvalue(name, KEY[MASK]), "one"))


@pytest.mark.parametrize("method", METHODS)
def test_bounds_on_the_weights_have_no_unit(method, x64):
    bounds = dict(constraints=QUERY.T[:, :2], bounds=np.array([0.3, -0.1]), method=method)
    run = jax.jit(
        lambda alpha, unit: constrained_weights(KEY, VALUE, alpha=alpha, unit=unit, **bounds), static_argnums=1
    )
    close(run(0.3, "trace"), run(0.3 * mean_eigenvalue("", KEY), "one"))


@pytest.mark.parametrize("name", WITH_UNIT)
@pytest.mark.parametrize("mask", [None, MASK, EACH], ids=["all", "some", "own"])
def test_the_length_of_the_keys_does_not_matter(name, mask, x64):
    close(in_units(name)(1e3 * QUERY, 1e3 * KEY, mask), in_units(name)(QUERY, KEY, mask))


@pytest.mark.parametrize("name", WITH_UNIT)
def test_queries_with_masks_of_their_own_have_units_of_their_own(name, x64):
    for i, row in enumerate(np.asarray(in_units(name)(QUERY, KEY, EACH))):
        close(in_units(name)(QUERY, KEY, EACH[i])[i], row)


@pytest.mark.parametrize("name", [name for name in WITH_UNIT if OPERATORS[name].weights])
def test_weights_are_those_of_the_output(name, x64):
    mixer = Mixer(dict(name=name, alpha=0.4, alpha_kind="sigmoid", unit="trace"))
    variables = start(mixer, QUERY, KEY, VALUE)
    weights = np.asarray(run(mixer, variables, KEY, VALUE, mask=MASK, method="weights"))
    close(QUERY @ weights, run(mixer, variables, QUERY, KEY, VALUE, mask=MASK))


@pytest.mark.parametrize("name", WITH_UNIT)
def test_keys_of_zeros_have_finite_gradients(name):
    loss = lambda key: OPS[name](np.ones((2, 3)), key, np.ones((4, 2)), alpha=0.5, unit="trace").sum()
    assert np.isfinite(jax.jit(jax.grad(loss))(np.zeros((4, 3)))).all()


def test_no_ridge_has_no_unit(x64):
    without = lambda unit: intention(QUERY, KEY, VALUE, alpha=0.0, unit=unit)
    close(*jax.jit(lambda: (without("trace"), without("one")))())


@pytest.mark.parametrize("name", WITH_UNIT)
def test_unknown_unit(name):
    with pytest.raises(ValueError, match="unknown unit of alpha 'traces'.*'trace'"):
        OPS[name](QUERY, KEY, VALUE, unit="traces")
