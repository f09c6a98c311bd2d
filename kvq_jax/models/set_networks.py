"""From a set to k rows: every network of Tables 1 to 3 of the Set Transformer (Lee et al. 2019, arXiv 1810.00825).

A network is an encoder, a pooling, a decoder and a head. Each row of the tables is a choice of these parts, and
SET_NETWORKS names the choices. DeepSets (Zaheer et al. 2017, arXiv 1703.06114) is one of them.

Of a mask, True = take part: a masked element is an absent one. A set without elements is pooled to zeros, by PMA to
what comes from its seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.domains import Count, Depth, Part
from kvq_jax.names import choose
from kvq_jax.nn import ISAB, MLP, PMA, SAB, Linear, Mixer, SetBlock, set_mean
from kvq_jax.nn.heads import attend
from kvq_jax.nn.mlp import parameter
from kvq_jax.nn.set_transformer import points_init
from kvq_jax.ops import masks


def set_sum(rows: Array, mask: Array | None = None) -> Array:
    """The sum of the rows [..., N, k] that mask [..., N] keeps, [..., 1, k]. Raises ValueError for another mask."""
    there = _there(rows, mask)
    return (rows if there is None else jnp.where(there, rows, 0)).sum(-2, keepdims=True)


def set_max(rows: Array, mask: Array | None = None) -> Array:
    """The largest of each feature over the rows [..., N, k] that mask [..., N] keeps, [..., 1, k]; 0 if it keeps none.

    Raises ValueError for another mask.
    """
    there = _there(rows, mask)
    if rows.shape[-2] == 0:
        return jnp.zeros((*rows.shape[:-2], 1, rows.shape[-1]), rows.dtype)
    if there is None:
        return rows.max(-2, keepdims=True)
    largest = jnp.where(there, rows, jnp.finfo(rows.dtype).min).max(-2, keepdims=True)
    return jnp.where(there.any(-2, keepdims=True), largest, 0)


def _there(rows: Array, mask: Array | None) -> Array | None:
    """The mask of the rows as [..., N, 1]. Raises ValueError, as the operators do."""
    pairs = masks.resolve(jnp.zeros((1, rows.shape[-1]), rows.dtype), rows, rows, mask)
    return pairs if pairs is None else jnp.swapaxes(pairs, -1, -2)


class SetNetwork(SetBlock):
    """k rows that do not depend on the order of a set.

        rows = SAB(...SAB(pool(encoder(X)))),  output = head(rows)

    where PMA pools to num_seeds rows and every other pooling to one. With as many rows as outputs the head acts on each
    row. With another number it acts on all of them side by side, and its output is cut into num_outputs rows.

    The fields of SetBlock are those of all its blocks; `op` is that of the dot-product pooling too. residual='paper'
    adds the elements to features of width dim: it needs embed=True where the elements are not so wide.

    Raises ValueError as SetBlock and for an unknown encoder or pooling.
    """

    encoder: str = "sab"  # a name of ENCODERS
    encoder_layers: Depth = 2
    activate_last: bool = True  # whether the last row-wise layer of an encoder has its ReLU; blocks always do
    num_inducing: Count = 16  # of each ISAB
    pooling: str = "pma"  # a name of POOLINGS
    num_seeds: Count = 1  # of PMA
    decoder_layers: Depth = 0  # SABs after the pooling
    head: Sequence[Count] = ()  # widths of the layers with ReLU before the last, linear one
    num_outputs: Count = 1
    out_features: Count = 1
    embed: bool = False  # a linear layer before the encoder, from elements of any width to dim

    @property
    def pma(self) -> dict[str, int]:
        """The fields of the PMA that are not those of all blocks."""
        return dict(num_seeds=self.num_seeds)

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None, seeds: Array | None = None) -> Array:
        """x [..., N, a], mask [..., N] -> [..., num_outputs, out_features].

        Where fewer outputs than seeds are asked for, seeds [..., num_seeds] says which; no other row looks at the rest.
        """
        return self.output(self.pooled(self.encoded(x, mask), mask, seeds))

    def encoded(self, x: Array, mask: Array | None) -> Array:
        """What the encoder makes of the elements, for `__call__`: [..., N, a] -> [..., N, dim]."""
        encode = choose(ENCODERS, self.encoder, "encoder")
        return encode(self, Linear(self.dim, **self.inits, name="embed")(x) if self.embed else x, mask)

    def pooled(self, x: Array, mask: Array | None, seeds: Array | None = None) -> Array:
        """What pooling and decoder make of that, for `__call__`: [..., N, dim] -> [..., rows, dim]."""
        rows = choose(POOLINGS, self.pooling, "pooling")(self, x, mask)
        for index in range(self.decoder_layers):
            rows = self.block(SAB, f"decoder_{index}")(rows, mask=seeds)
        return rows

    def output(self, rows: Array, activation: Callable[[Array], Array] = nn.relu) -> Array:
        """What the head makes of that, for `__call__`: [..., rows, dim] -> [..., num_outputs, out_features]."""
        head = dict(activation=activation, **self.inits, name="head")
        if rows.shape[-2] == self.num_outputs:
            return MLP((*self.head, self.out_features), **head)(rows)
        side_by_side = rows.reshape(*rows.shape[:-2], -1)
        output = MLP((*self.head, self.num_outputs * self.out_features), **head)(side_by_side)
        return output.reshape(*output.shape[:-1], self.num_outputs, self.out_features)


class SetClassifier(SetNetwork):
    """A SetNetwork that training thins out: dropout before PMA, and before each layer of the head.

    As the Set Transformer classifies point clouds (Section 5.5; supplement, Table 10). Raises as SetNetwork.
    """

    dropout: Part = 0.5

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None, deterministic: bool = True) -> Array:
        """x [..., N, a], mask [..., N] -> [..., num_outputs, out_features].

        With deterministic=False dropout draws from the random stream 'dropout'.
        """
        drop = nn.Dropout(self.dropout, deterministic=deterministic)
        encoded = self.encoded(x, mask)
        rows = self.pooled(drop(encoded) if self.pooling == "pma" else encoded, mask)
        return self.output(drop(rows), lambda hidden: drop(nn.relu(hidden)))


def _rows(pool: Callable | None = None) -> Callable[[SetNetwork, Array, Array | None], Array]:
    """An encoder of layers relu(x W + b), or of Zaheer's relu(x W + b + pool(X) V), which is equivariant.

    W and V are two matrices, the Lambda and Gamma of Zaheer et al.: each starts by its own number of rows.
    """

    def encode(net: SetNetwork, x: Array, mask: Array | None) -> Array:
        for index in range(net.encoder_layers):
            rows = Linear(net.dim, **net.inits, name=f"encoder_{index}")(x)
            if pool is not None:
                rows += Linear(net.dim, use_bias=False, **net.inits, name=f"pooled_{index}")(pool(x, mask))
            x = nn.relu(rows) if net.activate_last or index < net.encoder_layers - 1 else rows
        return x

    return encode


def _blocks(cls: type[SetBlock], *own: str) -> Callable[[SetNetwork, Array, Array | None], Array]:
    """An encoder of blocks of a class, which has the fields `own` beside those of SetBlock."""

    def encode(net: SetNetwork, x: Array, mask: Array | None) -> Array:
        for index in range(net.encoder_layers):
            x = net.block(cls, f"encoder_{index}", **{field: getattr(net, field) for field in own})(x, mask=mask)
        return x

    return encode


def _dot_product(net: SetNetwork, x: Array, mask: Array | None) -> Array:
    """The average of the elements, weighed by softmax(X q / sqrt(dim)) with a learnt q, or as another op weighs them.

    The paper names this pooling (after Yang et al. 2018 and Ilse et al. 2018) and prints no formula.
    """
    query = parameter(net, "query", points_init, (1, 1, x.shape[-1]))[0] / jnp.sqrt(x.shape[-1])
    return Mixer(net.op, name="mixer")(query, x, x, mask=mask)


def _attsets(net: SetNetwork, x: Array, mask: Array | None) -> Array:
    """Each feature averaged by weights of its own, softmax(X W) over the elements, or as another op weighs them.

    AttSets (Yang et al. 2018, arXiv 1808.00758), as attention with a head for each feature.
    """
    width = x.shape[-1]
    scores = Linear(width, use_bias=False, **net.inits, name="scores")(x)
    mix = Mixer(net.op, (width,), name="mixer")
    return attend(mix, width, jnp.ones((1, width), x.dtype), scores, x, mask=mask)


def _pma(net: SetNetwork, x: Array, mask: Array | None) -> Array:
    return net.block(PMA, "pool", **net.pma)(x, mask=mask)


# Name -> function(network, x [..., N, a], mask) -> [..., N, dim].
ENCODERS = {
    "rff": _rows(),
    "rffp_mean": _rows(set_mean),
    "rffp_max": _rows(set_max),
    "sab": _blocks(SAB),
    "isab": _blocks(ISAB, "num_inducing"),
}

# Name -> function(network, x [..., N, dim], mask) -> [..., rows, dim].
POOLINGS = {
    "mean": lambda net, x, mask: set_mean(x, mask),
    "sum": lambda net, x, mask: set_sum(x, mask),
    "max": lambda net, x, mask: set_max(x, mask),
    "dotprod": _dot_product,
    "attsets": _attsets,
    "pma": _pma,
}


class SetModel(NamedTuple):
    """A row of the tables."""

    label: str  # as the paper writes it
    parts: Mapping[str, Any]  # fields of SetNetwork
    cls: type[nn.Module] = SetNetwork


# The paper's own first, in the order of its tables.
SET_NETWORKS = {
    "rff_mean": SetModel("rFF + Pooling (mean)", dict(encoder="rff", pooling="mean")),
    "rff_sum": SetModel("rFF + Pooling (sum)", dict(encoder="rff", pooling="sum")),
    "rff_max": SetModel("rFF + Pooling (max)", dict(encoder="rff", pooling="max")),
    "rffp_mean": SetModel("rFFp-mean + Pooling", dict(encoder="rffp_mean", pooling="mean")),
    "rffp_max": SetModel("rFFp-max + Pooling", dict(encoder="rffp_max", pooling="mean")),
    "rff_dotprod": SetModel("rFF + Dotprod", dict(encoder="rff", pooling="dotprod")),
    "rff_attsets": SetModel("rFF + AttSets", dict(encoder="rff", pooling="attsets")),
    "sab_mean": SetModel("SAB + Pooling", dict(encoder="sab", pooling="mean")),
    "sab_dotprod": SetModel("SAB + Dotprod", dict(encoder="sab", pooling="dotprod")),
    **{
        f"isab{points}_mean": SetModel(
            f"ISAB ({points}) + Pooling", dict(encoder="isab", num_inducing=points, pooling="mean")
        )
        for points in (16, 32, 64)
    },
    "isab16_max": SetModel("ISAB (16) + Pooling (max)", dict(encoder="isab", num_inducing=16, pooling="max")),
    "rff_pma": SetModel("rFF + PMA", dict(encoder="rff", pooling="pma")),
    "sab_pma": SetModel("SAB + PMA", dict(encoder="sab", pooling="pma")),
    **{
        f"sab_pma{seeds}": SetModel(f"SAB + PMA ({seeds})", dict(encoder="sab", pooling="pma", num_seeds=seeds))
        for seeds in (2, 4, 8)
    },
    **{
        f"isab{points}_pma": SetModel(
            f"ISAB ({points}) + PMA", dict(encoder="isab", num_inducing=points, pooling="pma")
        )
        for points in (1, 2, 4, 8, 16, 32, 64)
    },
    "deep_sets": SetModel("DeepSets", dict(encoder="rff", activate_last=False, pooling="mean")),
}

# The same, thinned out in training.
SET_CLASSIFIERS = {name: row._replace(cls=SetClassifier) for name, row in SET_NETWORKS.items()}
