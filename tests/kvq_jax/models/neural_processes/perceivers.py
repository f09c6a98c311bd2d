"""Small models of the Perceiver family with all parameters drawn anew, for tests of models and of conditioning."""

import functools

import jax

from kvq_jax.models.neural_processes.cmanp import CMANP, CMANPAND
from kvq_jax.models.neural_processes.lbanp import EQTNP, LBANP, LBANPND
from kvq_jax.models.points import Points
from tests.kvq_jax.nn.drawing import draw, start

SMALL = dict(dim_y=2, features=16, embed_depth=2, hidden=8, num_heads=2, num_layers=2)
HEAD = dict(std_layers=1, rank=5, projector_depth=2, diagonal_depth=2, jitter=0.3)
BLOCKS = dict(num_latents=4, num_block_latents=3)
INTENTION = dict(cross_op=dict(name="intention", alpha=0.5))
MODELS = dict(
    eqtnp=EQTNP(**SMALL),
    lbanp=LBANP(**SMALL, num_latents=4),
    nd=LBANPND(**SMALL, **HEAD, num_latents=4),
    lowrank=LBANPND(**SMALL, **HEAD, num_latents=4, covariance="lowrank"),
    cmanp=CMANP(**SMALL, **BLOCKS),
    intention=CMANP(**SMALL, **INTENTION, **BLOCKS),
    cmanpand=CMANPAND(**SMALL, **HEAD, **BLOCKS, block_size=3),
)


def points(count, *batch, seed=0, mask=None):
    """Points with one input and two outputs."""
    return Points(draw(*batch, count, 1, seed=seed), draw(*batch, count, 2, seed=seed + 1), mask)


@functools.cache
def variables_of(name):
    """Scales of norms are about 1, so that what is drawn for the context and the targets comes through."""
    variables = start(MODELS[name], points(3), points(3).x, scale=0.3)
    return jax.tree_util.tree_map_with_path(lambda path, x: x + 1 if path[-1].key == "scale" else x, variables)
