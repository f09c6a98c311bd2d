"""Models without queries, from pairs (x, y) to one vector: two experiments of the Intention paper.

    model(x [..., N, d], y [..., N, 1], mask [..., N] or None) -> w [..., d]

The models named Weights are of the scaling experiment (Section 2, Appendix 2), where y = x w. `latent` is s, the size
of all layers; the experiment doubles it until the error is small. Each encoder sees the row [x_i, y_i], where the paper
writes e(K, V, Q). The models named Target are of policy distillation (Section 5.3, Appendix 6), where w is the target
and y the squared distance from the place x to it. There K = V = Q are the observations o_i = [x_i, y_i]; encoders and
op see [K, V, Q], each observation three times in a row. Class defaults are the sizes of Appendix 6.

Any leading dimensions. A masked row (False) is an absent row: its place may hold any number on which no encoder
overflows. Parameters and predictions are float32 where the fields `dtype` and `param_dtype` say nothing else. All raise
ValueError if shapes disagree or a name is unknown, those of MLPs also for another number of rows than the first call's.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict

from kvq_jax.domains import Count
from kvq_jax.models.few_shot import Regressor
from kvq_jax.models.initialised import Initialised
from kvq_jax.models.points import whole_mask
from kvq_jax.nn import Mixer, Op, set_mean
from kvq_jax.ops import masks


class IntentionWeights(Initialised):
    """E_K = e_K(x, y), E_V = e_V(x, y), prediction = e_P(w(E_K, E_V)) (Eq. 7); e_P sees w, s x s, flattened.

    e_K, e_V and e_P have two layers each: e_P is [s, d]. Raw keys and values, E_K = x and E_V = y, would solve the task
    untrained; here e_K has to find features that are near linear in x and ignore y. The paper does not give alpha.
    """

    latent: Count
    op: Op = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus")  # one that has weights

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        sizes = (self.latent, self.latent)
        return _read_weights(self, (x, y), mask, sizes, sizes, (self.latent, x.shape[-1]))


class AttentionWeights(Initialised):
    """S_. = leaky(e_.(x, y)) for K, Q, V, S_H = leaky(h_MHA(S_K, S_V, S_Q)), prediction = e_P(mean_i S_H) (Eq. 8).

    Each e_. and e_P is one layer; leaky has the slope tau below 0. The paper does not say how the N rows of S_H become
    one prediction: we take their mean. Its 5 heads divide no power of two: as in Haiku, each head is s wide and the
    heads mix to 5 s.
    """

    latent: Count
    num_heads: Count = 5
    slope: float = 0.01  # tau
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS
    op: Op = "softmax"

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        leaky = functools.partial(nn.leaky_relu, negative_slope=self.slope)
        sides = ("query", "key", "value")
        encoded = {side: leaky(self.mlp((self.latent,), f"{side}_encoder")(x, y)) for side in sides}
        hidden = leaky(self.attention(self.latent)(**encoded, mask=mask))
        return self.mlp((x.shape[-1],), "decoder")(set_mean(hidden, mask)[..., 0, :])


class NeuralProcessWeights(Initialised):
    """prediction = e_P(mean_i e_H(x_i, y_i)) with two and four layers (Eq. 9)."""

    latent: Count

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        return _read_mean(self, (x, y), mask, (self.latent,) * 2, (*(self.latent,) * 3, x.shape[-1]))


class MLPWeights(Initialised):
    """prediction = e_P(x_1, y_1, ..., x_N, y_N) with four layers (Eq. 10).

    The prediction depends on the order of the rows, and the first call fixes N. A masked row is a row of zeros.
    """

    latent: Count

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        return _read_rows(self, (x, y), mask, (*(self.latent,) * 3, x.shape[-1]))


class IntentionTarget(Initialised):
    """E_K = [K, V, Q], E_V = e_V([K, V, Q]), prediction = e_P(w(E_K, E_V)) (Eq. 19), where e_P sees w flattened.

    The keys are raw, of rank 3 in 9 columns: the system needs its alpha, for which the paper gives no value.
    """

    value_features: Sequence[Count] = (512, 512)
    decoder_features: Sequence[Count] = (128,)  # then one more layer, to d
    op: Op = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus")  # one that has weights

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        return _read_weights(self, (x, y) * 3, mask, (), self.value_features, (*self.decoder_features, x.shape[-1]))


class AttentionTarget(Initialised):
    """E_K = E_Q = [K, V, Q], E_V = e_V([K, V, Q]), prediction = e_P(mean_i h_MHA(E_K, E_V, E_Q)) (Eq. 20).

    The mean and the width of a head are ours: see AttentionWeights and AttentionRegressor.
    """

    value_features: Sequence[Count] = (128, 128)
    decoder_features: Sequence[Count] = (2048,)  # then one more layer, to d
    op: Op = "softmax"
    num_heads: Count = 5
    head_features: Count = 128
    scaling: str = "head"  # a name of kvq_jax.nn.SCALINGS

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        rows = jnp.concatenate((x, y) * 3, -1)
        value = self.mlp(self.value_features, "value_encoder")(rows)
        hidden = self.attention(self.head_features)(rows, rows, value, mask=mask)
        return self.mlp((*self.decoder_features, x.shape[-1]), "decoder")(set_mean(hidden, mask)[..., 0, :])


class NeuralProcessTarget(Initialised):
    """prediction = e_P(mean_i e_H([K_i, V_i, Q_i])) (Eq. 21)."""

    encoder_features: Sequence[Count] = (512, 512)
    decoder_features: Sequence[Count] = (512, 512, 128)  # then one more layer, to d

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        return _read_mean(self, (x, y) * 3, mask, self.encoder_features, (*self.decoder_features, x.shape[-1]))


class MLPTarget(Initialised):
    """prediction = e_P([K, V, Q]), all rows side by side (Eq. 22). Order and masks are as in MLPWeights."""

    features: Sequence[Count] = (512, 512, 512)  # then one more layer, to d

    @nn.compact
    def __call__(self, x, y, mask=None):
        check_shapes(x, y, mask)
        return _read_rows(self, (x, y) * 3, mask, (*self.features, x.shape[-1]))


class AtOnce(Regressor):
    """A network from places [..., N, 2] and distances [..., N, 1] to t [..., 2], called as a few-shot regressor."""

    network: nn.Module  # of those named Target

    def __call__(self, context, target_x, target_mask=None, *, key=None):
        """Context [..., N, 3] -> [..., N, 1], and queries, which the network does not see -> [..., 2, 1]."""
        mask = None if context.mask is None else whole_mask(context)
        return self.network(context.x[..., :2], context.y, mask)[..., None]


def _read_weights(model, rows: Sequence[jax.Array], mask, key_features, value_features, decoder_features) -> jax.Array:
    """e_P(w(E_K, E_V)) of `rows` [..., N, .] side by side, in layers of `model`. No key_features: E_K is the rows."""
    key = model.mlp(key_features, "key_encoder")(*rows) if key_features else jnp.concatenate(rows, -1)
    value = model.mlp(value_features, "value_encoder")(*rows)
    weights = Mixer(model.op, name="mixer").weights(key, value, mask=mask)
    flat = weights.reshape(*weights.shape[:-2], key.shape[-1] * value.shape[-1])
    return model.mlp(decoder_features, "decoder")(flat)


def _read_mean(model, rows: Sequence[jax.Array], mask, encoder_features, decoder_features) -> jax.Array:
    """e_P(mean_i e_H(rows_i))."""
    encoded = model.mlp(encoder_features, "encoder")(*rows)
    return model.mlp(decoder_features, "decoder")(set_mean(encoded, mask)[..., 0, :])


def _read_rows(model, rows: Sequence[jax.Array], mask, features) -> jax.Array:
    """e_P(rows_1, ..., rows_N)."""
    rows = jnp.concatenate(rows, -1)
    rows = rows if mask is None else jnp.where(mask[..., None], rows, 0)
    flat = rows.reshape(*rows.shape[:-2], rows.shape[-2] * rows.shape[-1])
    model.check_count("decoder", *rows.shape[-2:])
    return model.mlp(features, "decoder")(flat)


def check_shapes(x, y, mask):
    """Raises ValueError if the arguments of a weight regressor do not fit each other."""
    shapes = f"x {x.shape}, y {y.shape}"
    if x.shape[:-1] != y.shape[:-1]:
        raise ValueError(f"x and y differ before their last dimension: {shapes}")
    if mask is not None:
        masks.check_boolean(mask)
        if mask.shape != x.shape[:-1]:
            raise ValueError(f"mask {mask.shape} is not x without its last dimension: {shapes}")
