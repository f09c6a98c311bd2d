"""Small models of the CNP family, with what they draw, for the tests of the models and of bootstraps."""

import functools

import jax
import numpy as np

from kvq_jax.models.neural_processes.bootstrap import BANP, BNP, Draws
from kvq_jax.models.neural_processes.conditional import CANP, CNP
from kvq_jax.models.neural_processes.latent import ANP, NP
from kvq_jax.models.points import Points
from tests.kvq_jax.nn.drawing import draw, start

SMALL = dict(dim_y=2, hidden=8, pre_depth=3, post_depth=1, decoder_depth=2)
ATTENTIVE = dict(num_heads=2, value_depth=3, key_depth=1)
SAMPLED = dict(train_samples=2, eval_samples=3)
INTENTION = dict(op=dict(name="intention", alpha=0.5), self_attention=False)
MODELS = dict(
    cnp=CNP(**SMALL),
    canp=CANP(**SMALL, **ATTENTIVE),
    np=NP(**SMALL, **SAMPLED, latent=3),
    anp=ANP(**SMALL, **ATTENTIVE, **SAMPLED, latent=3),
    bnp=BNP(**SMALL, **SAMPLED),
    banp=BANP(**SMALL, **ATTENTIVE, **SAMPLED),
    intention=ANP(**SMALL, **ATTENTIVE, **SAMPLED, **INTENTION, latent=3),
)
N, M, K = 7, 4, 3
KEY = jax.random.key(0)


def points(count, *batch, seed=0):
    return Points(draw(*batch, count, 1, seed=seed), draw(*batch, count, 2, seed=seed + 1))


def chance(model, count):
    """What the model draws for a context of `count` points: noise for z, indices of bootstraps, or nothing."""
    if isinstance(model, NP):
        return (draw(K, model.latent),)
    if isinstance(model, BNP):
        return (Draws(*np.random.default_rng(0).integers(0, max(count, 1), (2, K, count))),)
    return ()


@functools.cache
def made(name):
    """A small model and its variables."""
    return MODELS[name], start(MODELS[name], points(N), points(M).x, key=KEY, scale=0.7)


def close(one, other, tolerance=2e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


def hide(rows, kept):
    """Only the points `kept` are there; nonsense stands in the place of the others."""
    mask = np.isin(np.arange(len(rows.x)), kept)
    return Points(*(np.where(mask[:, None], array, np.float32(1e3)) for array in rows[:2]), mask)
