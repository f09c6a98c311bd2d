"""Streams with the options, sizes and draws that their tests share."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvq_jax.ops import OPERATORS, OPS
from tests.kvq_jax.ops import reference

STREAMS = {name: row.stream for name, row in OPERATORS.items() if row.stream}
OPTIONS = {name: {} for name in STREAMS} | {"softmax": {"scale": 0.7}, "intention": {"alpha": 0.3}}
FADING = ("linear", "uniform", "intention", "informer")
FIXED = ("softmax", "laplace", "erf")
M, N, D, K = 3, 12, 2, 4
every_stream = pytest.mark.parametrize("name", STREAMS)
every_state = pytest.mark.parametrize(
    "name", ["softmax", "erf", "linear", "uniform", "intention"]
)  # one stream of each kind
BATCH = {name: jax.jit(functools.partial(OPS[name], **OPTIONS[name])) for name in STREAMS}


def make(name, query, **options):
    return STREAMS[name](query, **OPTIONS[name], **options)


def draw(seed=0, dtype=np.float64, n=N, batch=()):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=(*batch, *s)), dtype) for s in ((M, D), (n, D), (n, K))]


def close(a, b, tolerance=1e-12):
    reference.close(a, b, tolerance)


def trees_close(a, b, tolerance=1e-12):
    chex.assert_trees_all_close(a, b, rtol=tolerance, atol=tolerance)
