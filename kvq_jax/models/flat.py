"""The baseline that knows nothing of sets: an MLP of all context points in their order (Intention paper, Appendices 6, 7)."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import linen as nn

from kvq_jax.models.few_shot import check_shapes
from kvq_jax.nn import MLP, fourier_features


class MLPRegressor(nn.Module):
    """prediction = e_P([K_1, V_1, ..., K_N, V_N, Q_j]) (Intention paper, Eq. 26), with the call of the few-shot regressors.

        model(context_x [..., N, dx], context_y [..., N, dy], context_mask [..., N] or None, target_x [..., M, dx])
            -> prediction [..., M, dy]

    It depends on the order of the context, and the first call fixes N. The paper's network takes all queries at once and so
    fixes M too; here each query has its own row, so that a model of 5 queries can map a whole point cloud. It has no way to
    leave a point out: a masked point is a point of zeros. The first layer multiplies the context once for all queries.
    """

    features: Sequence[int] = (256, 256, 256)  # then one more layer, to dy
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"
    fourier_levels: int = 0

    @nn.compact
    def __call__(self, context_x, context_y, context_mask, target_x):
        check_shapes(context_x, context_y, context_mask, target_x)
        context_x, target_x = (fourier_features(x, self.fourier_levels) for x in (context_x, target_x))
        points = jnp.concatenate([context_x, context_y], -1)
        points = points if context_mask is None else jnp.where(context_mask[..., None], points, 0)
        flat = points.reshape(*points.shape[:-2], 1, points.shape[-2] * points.shape[-1])
        inits = dict(kernel_init=self.kernel_init, bias_init=self.bias_init)
        return MLP((*self.features, context_y.shape[-1]), **inits, name="decoder")(flat, target_x)
