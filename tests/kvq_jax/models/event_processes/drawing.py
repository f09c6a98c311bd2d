"""Small event processes with drawn parameters, and events, for the tests of all of them."""

import jax
import jax.numpy as jnp
import numpy as np

from kvq_jax.fields import fields_of
from kvq_jax.models import EVENT_MODELS, Events
from tests.kvq_jax.nn.drawing import start

MARKS, LENGTH, THERE = 3, 7, 5  # the second of two sequences has five events
DATA = dict(num_marks=MARKS, time_scale=2.0, log_mean=0.3, log_std=1.2)
NARROW = dict(
    num_layers=2,
    features=8,
    num_latents=3,
    num_block_latents=2,
    num_heads=2,
    head_features=4,
    hidden=6,
    mark_features=3,
    components=3,
)


def narrow(name, **fields):
    cls = EVENT_MODELS[name].cls
    return cls(**DATA, **{field: NARROW[field] for field in fields_of(cls).keys() & NARROW.keys()}, **fields)


def drawn(model, dtype=jnp.float32):
    """Variables of a model, every parameter drawn anew."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), start(model, events(), scale=0.4))


def events(dtype=jnp.float32, absent=0.0):
    """Two sequences; absent events hold `absent`, or a mark that is none."""
    rng = np.random.default_rng(5)
    gap, mark = rng.exponential(2.0, (2, LENGTH)), rng.integers(0, MARKS, (2, LENGTH))
    mask = np.ones((2, LENGTH), bool)
    mask[1, THERE:] = False
    gap[~mask], mark[~mask] = absent, -7 if np.isnan(absent) else 1
    return Events(
        jnp.asarray(gap, dtype), jnp.asarray(mark, jnp.int32), jnp.asarray(mask), jnp.asarray([0.7, 1.9], dtype)
    )


def second(of):
    """The second sequence alone, without its absent events."""
    return Events(of.gap[1, :THERE], of.mark[1, :THERE], None, of.rest[1])
