"""Stacks of layers of which one is traced for all."""

import jax
import numpy as np
import pytest

from kvq_jax.nn import stack
from kvq_jax.nn.transformer import TransformerEncoder

X = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
OPS = ["softmax", dict(name="softmax", scale=np.array([0.5, 2.0], np.float32))]  # an array has no hash


@pytest.mark.parametrize("op", OPS)
def test_layers_have_their_own_parameters_in_and_outside_of_jit(op):
    encoder = TransformerEncoder(num_layers=3, num_heads=2, hidden=8, op=op, copy_layers=False)
    variables = encoder.init(jax.random.key(0), X)
    inside, outside = jax.jit(encoder.apply)(variables, X), encoder.apply(variables, X)
    np.testing.assert_allclose(inside, outside, rtol=1e-5, atol=1e-6)
    alike = {"params": variables["params"] | {"layer_1": variables["params"]["layer_0"]}}
    assert np.abs(encoder.apply(alike, X) - outside).max() > 1e-3


def test_outside_of_jit_a_layer_is_compiled_once():
    encoder = TransformerEncoder(num_layers=3, num_heads=2, hidden=8)
    variables = encoder.init(jax.random.key(0), X)
    first, before = encoder.apply(variables, X), stack._kept._cache_size()
    np.testing.assert_array_equal(encoder.apply(variables, X), first)
    np.testing.assert_array_equal(encoder.clone().apply(variables, X), first)
    assert stack._kept._cache_size() == before > 0
