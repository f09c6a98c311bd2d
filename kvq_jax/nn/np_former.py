"""The NP-Former: the aggregation of a neural process as the block of a Transformer's layer; and the family by name."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict
from jax import Array

from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.heads import mask_of_heads, merge_heads, split_heads
from kvq_jax.nn.mixer import Op
from kvq_jax.nn.mlp import MLP, Linear
from kvq_jax.nn.transformer import ResidualLayer, TransformerLayer
from kvq_jax.ops import OPS


class NPFormerLayer(ResidualLayer):
    """A layer around a neural process of the set with itself (Garnelo and Czarnecki 2023, Appendix 8).

        E_C = e_C(mean_i [E_K,i ; E_V,i]),  E_Z,i = e_Z([E_Q,i ; E_C])

    in each head, and a linear map of the heads side by side. Every head has its own E_Q, E_K and E_V, linear in the
    input, its own e_C, an MLP with one hidden layer, and its own e_Z, which is linear. embed_features is the width of
    relu(e_X(X)), which the other layers of the family have first; None leaves it out, as the paper prints it here
    (arXiv 2305.10203). With no element left the mean is zero.
    """

    num_heads: int = 4
    head_features: int = 256
    context_features: int = 1024  # of e_C, hidden and output
    embed_features: int | None = None

    def mix(self, x: Array, mask: Array | None) -> Array:
        linear = functools.partial(Linear, **self.inits)
        embedded = x if self.embed_features is None else nn.relu(linear(self.embed_features, name="embed")(x))
        rows = [linear(self.num_heads * self.head_features, name=name)(embedded) for name in ("query", "key", "value")]
        query, key, value = (split_heads(each, self.num_heads) for each in rows)
        pairs = jnp.concatenate([key, value], axis=-1)
        # One mean serves all elements, unless each has a mask of its own.
        each = mask is not None and mask.ndim > 1 and mask.ndim == x.ndim
        mean = OPS["uniform"](pairs if each else pairs[..., :1, :], pairs, pairs, mask=mask_of_heads(mask, rows[1]))
        own = self.inits | self.dtypes  # a lifted module does not see the one around it
        context = _of_heads(MLP)((self.context_features,) * 2, self.activation, **own, name="context")(mean)
        heads = _of_heads(Linear)(self.head_features, **own, name="heads")(query, context)
        return linear(x.shape[-1], name="out")(merge_heads(heads))


def _of_heads(module: type[nn.Module]) -> type[nn.Module]:
    """The same module with parameters for each head of [..., H, N, d]."""
    return nn.vmap(module, in_axes=-3, out_axes=-3, variable_axes={"params": 0}, split_rngs={"params": True})


def _heads(op: Op) -> Callable[..., TransformerLayer]:
    return functools.partial(
        TransformerLayer, op=op, num_heads=4, head_features=256, embed_features=1024, scaling="none", hidden=2048
    )


# Name -> layer(**fields), with the sizes of Appendix 8 where no field says otherwise. The text also gives each head
# 1024 features, which does not fit its concatenation of four heads to 1024.
FORMERS = {
    "transformer": _heads("softmax"),
    "lin_transformer": _heads("linear"),
    "informer": _heads(dict(name="informer", alpha=0.5, alpha_kind="sigmoid")),
    "sigma_informer": _heads(dict(name="sigma_informer", alpha=0.5, alpha_kind="sigmoid")),
    "np_former": NPFormerLayer,
}


class Former(Block):
    """Input dropout, a linear map to the width of the layers, and a stack of layers of the same kind.

    Garnelo and Czarnecki 2023, Section 5.5 and Appendix 8: 1 or 4 layers, 20 % of the inputs dropped. Their X has 512
    features and E_Z has 1024, so that the residual E_Z + X of the first layer needs a map; this one is ours. With
    norm='pre' a last LayerNorm follows. Raises TypeError if an option is not a field of the layer.
    """

    layer: str = "transformer"  # a name of FORMERS
    num_layers: int = 4
    features: int = 1024
    input_dropout: float = 0.2
    options: Mapping[str, Any] = FrozenDict()  # fields of the layer, such as hidden or dropout

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None, deterministic: bool = True) -> Array:
        """x [..., N, a], mask [..., N] or [..., N, N], True = take part -> [..., N, features]."""
        build = choose(FORMERS, self.layer, "layer")
        x = nn.Dropout(self.input_dropout, deterministic=deterministic)(x)
        x = Linear(self.features, bias_init="zeros", name="input")(x)
        for index in range(self.num_layers):
            layer = build(**self.options, name=f"layer_{index}")
            x = layer(x, mask=mask, deterministic=deterministic)
        if self.num_layers and layer.norm == "pre":
            x = self.norm_layer(layer.epsilon, "norm")(x)
        return x
