"""Encoders of pairs around one op: they learn the generalised Kabsch algorithm (Intention paper, Appendix 7)."""

from collections.abc import Sequence

from flax import linen as nn
from flax.core import FrozenDict

from kvq_jax.domains import Count, Natural
from kvq_jax.models.few_shot import Regressor
from kvq_jax.models.initialised import Initialised
from kvq_jax.nn import Mixer, Op


class PairRegressor(Initialised, Regressor):
    """E_K = e_K([K, V]), E_V = e_V([K, V]), E_Q = e_Q(Q), prediction = e_P(h(E_K, E_V, E_Q)).

    Intention paper, Eqs. 23 and 24. With num_heads=0, h is the op itself (h_int, the default); else it is multi-head
    attention. IntentionRegressor differs: its e_K sees keys alone and encodes the queries too, its values are raw, and
    nothing follows its op.

    The paper writes e(K, V, Q) for all three encoders, which needs as many queries as pairs. But its model maps a whole
    point cloud; here each pair and each query has a row of its own. The paper's 5 heads do not divide its width: as in
    AttentionRegressor, each head is head_features wide.

    Raises ValueError if shapes disagree, a name is unknown, or heads have no width.
    """

    key_features: Sequence[Count] = (128, 128)
    value_features: Sequence[Count] = (128, 128)
    query_features: Sequence[Count] = (128, 128)
    decoder_features: Sequence[Count] = (128, 128)  # then one more layer, to dy
    op: Op = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus")
    num_heads: Natural = 0
    head_features: Natural = 0  # width of a head, where there are any
    scaling: str = "none"  # of the heads, a name of kvq_jax.nn.SCALINGS

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        if self.num_heads and not self.head_features:
            raise ValueError(f"num_heads={self.num_heads} needs head_features, the width of each")
        x, y, mask = context
        key = self.mlp(self.key_features, "key_encoder")(x, y)
        value = self.mlp(self.value_features, "value_encoder")(x, y)
        query = self.mlp(self.query_features, "query_encoder")(target_x)
        mix = self.attention(self.head_features) if self.num_heads else Mixer(self.op, name="mixer")
        read = mix(query, key, value, mask=mask)
        return self.mlp((*self.decoder_features, y.shape[-1]), "decoder")(read)
