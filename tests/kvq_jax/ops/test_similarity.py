"""Scores and mixtures whose gradients a CPU makes as columns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.ops import similarity
from kvq_jax.ops.similarity import mix, scores

PRODUCTS = {"scores": (scores, "hmd,hnd->hmn", (2, 5, 3)), "mix": (mix, "hmn,hnk->hmk", (2, 5, 7))}


@pytest.fixture(params=PRODUCTS)
def product(request, monkeypatch):
    """A product of few pairs that counts as one of many, its plain form, and its arguments."""
    monkeypatch.setattr(similarity, "_MANY", 1)
    function, letters, shape = PRODUCTS[request.param]
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=size) for size in (shape, (2, 7, 3))]
    return function, lambda a, b: jnp.einsum(letters, a, b), arrays


def laid_out(function, *arrays) -> bool:
    return "optimization_barrier" in str(jax.make_jaxpr(jax.grad(lambda *xs: function(*xs).sum(), (0, 1)))(*arrays))


def test_values_and_derivatives_are_those_of_the_plain_product(product, x64):
    """By both arguments: gradient, forward mode, gradient of the gradient, and all of a batch by vmap."""
    function, plain, arrays = product
    arrays = [jnp.asarray(x) for x in arrays]

    def derivatives(function):
        loss = lambda arrays: jnp.sin(function(*arrays)).sum()
        gradient = jax.grad(loss)
        along = lambda arrays: sum(jnp.vdot(x, jnp.cos(x)) for x in gradient(arrays))
        forward = lambda arrays: jax.jvp(loss, (arrays,), (jax.tree.map(jnp.cos, arrays),))
        each = lambda arrays: (function(*arrays), gradient(arrays), forward(arrays), jax.grad(along)(arrays))
        return each(arrays), jax.vmap(each)(jax.tree.map(lambda x: jnp.stack([x, 2 * x]), arrays))

    found, expected = (jax.tree.leaves(jax.jit(derivatives, static_argnums=0)(f)) for f in (function, plain))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices read both ways alike")
def test_narrow_rows_of_many_pairs_are_laid_out_as_columns(product, monkeypatch):
    function, _, (other, rows) = product
    assert laid_out(function, other, rows)
    monkeypatch.setattr(similarity, "_NARROW", 2)
    assert not laid_out(function, other, rows)  # three columns, and five queries have no eighth
    monkeypatch.setattr(similarity, "_PART", 1)
    assert laid_out(function, other, rows)
    monkeypatch.setattr(similarity, "_MANY", 5 * 7 + 1)
    assert not laid_out(function, other, rows)
