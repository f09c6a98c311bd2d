"""Which element of a set does not belong: the models of Table 3 of the Intention paper."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict

from kvq_jax.domains import Count, Depth, Part
from kvq_jax.nn import Former, Linear
from kvq_jax.nn.block import Block


class SetAnomalyDetector(Block):
    """A logit for each element of a set, given the others.

        logit_i = w' dropout(relu(LayerNorm(W O_i + b))) + c,    O = Former(X)

    Garnelo and Czarnecki 2023 (arXiv 2305.10203), Section 5.5 and Appendix 8. The softmax of the logits over the set is
    the probability of being its anomaly. The paper prints no head. This one is of the University of Amsterdam's Deep
    Learning tutorial 6, whose experiment the paper repeats. A permuted set has permuted logits: there are no positions.

    Raises ValueError if the layer's name is unknown; TypeError if an option is not a field of the layer.
    """

    layer: str = "transformer"  # a name of kvq_jax.nn.FORMERS
    num_layers: Depth = 4
    features: Count = 1024
    input_dropout: Part = 0.2
    dropout: Part = 0.0  # of the layers' residual branches and of the head
    options: Mapping[str, Any] = FrozenDict()  # fields of the layer, such as hidden or num_heads

    @nn.compact
    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None, deterministic: bool = True) -> jax.Array:
        """x [..., N, d], mask [..., N], True = take part -> logits [..., N]; an absent element has the least float32.

        With deterministic=False dropout draws from the random stream 'dropout'.
        """
        options = dict(self.options, dropout=self.dropout)
        former = Former(self.layer, self.num_layers, self.features, self.input_dropout, options, name="former")
        x = former(x, mask=mask, deterministic=deterministic)
        x = Linear(self.features, bias_init="zeros", name="hidden")(x)
        x = nn.relu(self.norm_layer(1e-5, "norm")(x))
        x = nn.Dropout(self.dropout, deterministic=deterministic)(x)
        logits = Linear(1, bias_init="zeros", name="logit")(x)[..., 0]
        return logits if mask is None else jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
