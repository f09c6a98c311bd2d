"""The baseline without sets: an MLP of all context points in their order (Intention paper, Appendices 6 and 7)."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import linen as nn

from kvq_jax.domains import Count, Natural
from kvq_jax.models.few_shot import Regressor, positions
from kvq_jax.models.initialised import Initialised


class MLPRegressor(Initialised, Regressor):
    """prediction = e_P([K_1, V_1, ..., K_N, V_N, Q_j]) (Intention paper, Eq. 26), called as a few-shot regressor.

    The prediction depends on the order of the context, and the first call fixes N. A masked point is a point of zeros.
    The paper's network takes all queries at once, which fixes M too. Here each query has its own row: a model trained
    on 5 queries can map a whole point cloud. The first layer multiplies the context once for all queries.

    Raises ValueError for another number of context points than the first call's, or if shapes disagree.
    """

    features: Sequence[Count] = (256, 256, 256)  # then one more layer, to dy
    fourier_levels: Natural = 0

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        (x, y, mask), target_x = positions(context, target_x, self.fourier_levels)
        points = jnp.concatenate([x, y], -1)
        points = points if mask is None else jnp.where(mask[..., None], points, 0)
        flat = points.reshape(*points.shape[:-2], 1, points.shape[-2] * points.shape[-1])
        self.check_count("decoder", *points.shape[-2:], target_x.shape[-1])
        return self.mlp((*self.features, y.shape[-1]), "decoder")(flat, target_x)
