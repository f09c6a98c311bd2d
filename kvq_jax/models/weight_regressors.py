"""The four models of the Intention paper's scaling experiment (Section 4, Appendix 2): from pairs (x, y) of y = x w to w.

    model(x [..., N, d], y [..., N, 1], mask [..., N] or None) -> w [..., d]

Any leading dimensions. `latent` is s, the one size of all layers, which the experiment doubles until the error is small. A
masked row (False) is an absent row; what stands in its place may be any finite number. Each encoder sees the row [x_i, y_i]:
the paper writes e(K, V, Q), and there are no queries. Parameters and predictions are float32. Raises ValueError if shapes
disagree or a name is unknown.
"""
import functools

import jax.numpy as jnp
from flax import linen as nn

from kvq_jax.nn import MLP, Alpha, MultiHead, find_op, set_mean
from kvq_jax.ops import intention_weights


class IntentionWeights(nn.Module):
    """E_K = e_K(x, y), E_V = e_V(x, y), prediction = e_P(w(E_K, E_V)) (Eq. 7), where w is s x s and e_P sees it flattened.

    Each of e_K, e_V, e_P has two layers, so e_P is [s, d]. Raw keys and values, E_K = x and E_V = y, would solve the task
    untrained; here e_K has to find features that are near linear in x and ignore y. The paper gives neither alpha nor its
    start.
    """

    latent: int
    alpha: float = 0.1  # the first ridge
    alpha_kind: str = "softplus"  # a name of kvq_jax.nn.ALPHA_KINDS
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        mlp = functools.partial(MLP, kernel_init=self.kernel_init, bias_init=self.bias_init)
        key = mlp((self.latent, self.latent), name="key_encoder")(x, y)
        value = mlp((self.latent, self.latent), name="value_encoder")(x, y)
        alpha = Alpha(self.alpha_kind, self.alpha, name="ridge")(key, value, mask=mask)
        weights = intention_weights(key, value, mask=mask, alpha=alpha)
        flat = weights.reshape(*weights.shape[:-2], self.latent**2)
        return mlp((self.latent, x.shape[-1]), name="decoder")(flat)


class AttentionWeights(nn.Module):
    """S_. = leaky(e_.(x, y)) for K, Q, V of one layer each, S_H = leaky(h_MHA(S_K, S_V, S_Q)), prediction = e_P(mean_i S_H)
    (Eq. 8), where e_P is one layer and leaky has the slope tau below 0.

    The paper does not say how the N rows of S_H become one prediction: their mean. Its 5 heads divide no power of two: as in
    Haiku, each head is s wide and the heads mix to 5 s.
    """

    latent: int
    num_heads: int = 5
    slope: float = 0.01  # tau
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    op: str = "softmax"  # a name of kvq_jax.ops.OPS
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        inits = dict(kernel_init=self.kernel_init, bias_init=self.bias_init)
        leaky = functools.partial(nn.leaky_relu, negative_slope=self.slope)
        encoded = {name: leaky(MLP((self.latent,), **inits, name=f"{name}_encoder")(x, y)) for name in ("query", "key", "value")}
        attend = MultiHead(self.num_heads, self.latent, find_op(self.op), scaling=self.scaling, **inits,
                           name="attention")
        hidden = leaky(attend(**encoded, mask=mask))
        return MLP((x.shape[-1],), **inits, name="decoder")(set_mean(hidden, mask)[..., 0, :])


class NeuralProcessWeights(nn.Module):
    """prediction = e_P(mean_i e_H(x_i, y_i)) with two and four layers (Eq. 9)."""

    latent: int
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        inits = dict(kernel_init=self.kernel_init, bias_init=self.bias_init)
        rows = MLP((self.latent,) * 2, **inits, name="encoder")(x, y)
        return MLP((*(self.latent,) * 3, x.shape[-1]), **inits, name="decoder")(set_mean(rows, mask)[..., 0, :])


class MLPWeights(nn.Module):
    """prediction = e_P(x_1, y_1, ..., x_N, y_N) with four layers (Eq. 10): no function of a set, and N is fixed by the first call.

    It has no way to leave a row out: a masked row is a row of zeros to it.
    """

    latent: int
    kernel_init: str = "lecun_normal"
    bias_init: str = "fan_in_uniform"

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        rows = jnp.concatenate([x, y], -1)
        rows = rows if mask is None else jnp.where(mask[..., None], rows, 0)
        flat = rows.reshape(*rows.shape[:-2], rows.shape[-2] * rows.shape[-1])
        features = (*(self.latent,) * 3, x.shape[-1])
        return MLP(features, kernel_init=self.kernel_init, bias_init=self.bias_init, name="decoder")(flat)


def check_shapes(x, y, mask):
    """Raises ValueError if the arguments of a weight regressor do not fit each other."""
    shapes = f"x {x.shape}, y {y.shape}"
    if x.shape[:-1] != y.shape[:-1]:
        raise ValueError(f"x and y differ before their last dimension: {shapes}")
    if mask is not None and mask.shape != x.shape[:-1]:
        raise ValueError(f"mask {mask.shape} is not x without its last dimension: {shapes}")


WEIGHT_REGRESSORS = {
    "intention": IntentionWeights,
    "attention": AttentionWeights,
    "neural_process": NeuralProcessWeights,
    "mlp": MLPWeights,
}
