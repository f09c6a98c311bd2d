"""EQTNP, LBANP and LBANP-ND: targets query the context layer by layer (Feng et al. 2023, LBANP, arXiv 2211.08458).

An encoder makes one level of the context for each layer of the decoder, and decoder layer l attends to level l only. So
the context is encoded once, without the targets, and each target is predicted on its own. A level of EQTNP has a row
for each context point; a level of LBANP or CMANP has a fixed number of latents.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import linen as nn
from numpyro.distributions import Distribution

from kvq_jax.domains import Count, Depth, NotNegative
from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.base import NeuralProcess
from kvq_jax.models.neural_processes.joint import HEAD_NAMES, JointHead
from kvq_jax.models.points import Points
from kvq_jax.models.torch_names import mlp_names
from kvq_jax.nn import MLP, Op
from kvq_jax.nn.block import Block
from kvq_jax.nn.mlp import parameter
from kvq_jax.nn.perceiver import PerceiverBlock
from kvq_jax.nn.stack import traced_once

EPSILON = 1e-5  # of the last LayerNorm


class LevelProcess(NeuralProcess):
    """What the family shares: embedders, decoder and predictor. A model defines `levels`, after its encoder in `setup`.

    The predictive distribution is factorised. `std_map` and `std_floor` as in predictive.moments: 'exp' and 0 are
    published; for bounded deviations 'softplus' and 0.05. Blocks are those of kvq_jax.nn.perceiver. With copy_layers
    all layers of the encoder start equal, and all of the decoder: in the released code they are deep copies of one.

    Raises ValueError if a name is unknown, or num_heads does not divide features.
    """

    features: Count = 64
    embed_depth: Depth = 4
    hidden: Count = 128  # of each GEGLU and of the predictor
    num_heads: Count = 4
    num_layers: Depth = 6
    op: Op = "softmax"
    residual: str = "normalized"  # a name of kvq_jax.nn.perceiver.PRENORM_RESIDUALS
    std_map: str = "exp"  # a name of predictive.STD_MAPS
    std_floor: NotNegative = 0.0
    copy_layers: bool = True

    def setup(self):
        mlp = functools.partial(MLP, kernel_init="fan_in_uniform")
        self.embedder, self.query_embedder = (mlp((self.features,) * self.embed_depth) for _ in range(2))
        self.decoder = [PerceiverBlock(cross=True, **self.sizes()) for _ in range(self.num_layers)]
        self.norm = self.norm_layer(EPSILON)
        self.predictor = mlp((self.hidden, 2 * self.dim_y))

    def sizes(self) -> dict:
        """The fields that every block of the model shares."""
        if self.features % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} does not divide features={self.features}")
        shared = {name: getattr(self, name) for name in ("features", "num_heads", "hidden", "op", "residual")}
        return dict(shared, head_features=self.features // self.num_heads)

    def __call__(self, context, target_x, target_mask=None, *, key=None) -> Distribution:
        """At target_x [..., M, dx]: Independent(Normal) with batch [..., M], event [dim_y]."""
        return self.predict(self.decode(self.levels(context), target_x), target_mask)

    def remember(self, context: Points, *, key: jax.Array | None = None) -> Any:
        """The levels."""
        return self.levels(context)

    def query(self, memory, target_x, target_mask=None, *, key=None) -> Distribution:
        return self.predict(self.decode(memory, target_x), target_mask)

    def levels(self, context: Points) -> Sequence[tuple[jax.Array, jax.Array | None]]:
        """The rows [..., n, features] that each decoder layer attends to, with their masks [..., n] or None."""
        raise NotImplementedError

    def decode(self, levels: Sequence[tuple[jax.Array, jax.Array | None]], target_x: jax.Array) -> jax.Array:
        """Encodings of the targets [..., M, features], each on its own."""
        rows, apply = self.query_embedder(target_x), traced_once(self.decoder, self.copy_layers)
        for layer, (level, mask) in zip(self.decoder, levels, strict=True):
            rows = apply(layer, rows, level, mask=mask)
        return self.norm(rows)

    def predict(self, encodings: jax.Array, target_mask: jax.Array | None) -> Distribution:
        """The predictive distribution of targets with encodings [..., M, features]."""
        return predictive.factorised(*predictive.moments(self.predictor(encodings), self.std_map, self.std_floor))


class JointProcess(JointHead, LevelProcess):
    """The family with one multivariate normal for all targets (kvq_jax.nn.covariance_head): the variants named ND.

    The training loss is the joint negative log-likelihood, not divided by the number of targets; `log_likelihood`
    divides by it. `unused_predictor` keeps the predictor that the released code has and never uses: parameters without
    gradient, so that parameter counts agree. `bound` limits deviations here; `std_map` and `std_floor` are of marginal
    predictions.

    Raises ValueError for another std_map or std_floor than the default, too.
    """

    unused_predictor: bool = True

    def setup(self):
        super().setup()
        if (self.std_map, self.std_floor) != (LevelProcess.std_map, LevelProcess.std_floor):
            raise ValueError("std_map and std_floor are of marginal predictions: bound=True limits joint ones")

    def predict(self, encodings: jax.Array, target_mask: jax.Array | None) -> Distribution:
        """A multivariate normal with batch [...] and event [M dim_y]."""
        if self.unused_predictor and self.is_initializing():
            self.predictor(encodings)
        return self.head(encodings, target_mask)

    def loss(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """-log p(target.y | context) of each task, [...]: of all targets together, not divided by their number."""
        return -predictive.log_prob(self(context, target.x, target.mask), target.y, target.mask)


class EQTNP(LevelProcess):
    """Efficient-Queries TNP: LBANP without its bottleneck (Feng et al. 2023, arXiv 2211.08458).

    The first level is the embedded context; each of num_layers - 1 self-attention layers makes the next one. Encoding N
    points takes O(N^2), M targets O(N M).
    """

    def setup(self):
        super().setup()
        self.encoder = [PerceiverBlock(**self.sizes()) for _ in range(self.num_layers - 1)]

    def levels(self, context: Points) -> Sequence[tuple[jax.Array, jax.Array | None]]:
        """num_layers times rows [..., N, features] with the mask of the context."""
        levels = [self.embedder(context.x, context.y)]
        apply = traced_once(self.encoder, self.copy_layers)
        for layer in self.encoder:
            levels.append(apply(layer, levels[-1], mask=context.mask))
        return [(level, context.mask) for level in levels]


class LatentLayer(Block):
    """L' = SelfAttention(CrossAttention(L, D)), each with its GEGLU: a layer of LBANP's encoder (Section 3.1)."""

    block: Callable[..., PerceiverBlock]  # its attentions, made with further fields

    @nn.compact
    def __call__(self, latents: jax.Array, context: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """latents [..., n, features], context [..., N, b], mask [..., N] -> [..., n, features]. They broadcast."""
        latents = self.block(cross=True, name="cross")(latents, context, mask=mask)
        return self.block(name="latent")(latents)


class LBANP(LevelProcess):
    """Latent Bottlenecked Attentive Neural Process (Feng et al. 2023, arXiv 2211.08458).

    A level is num_latents latents. In each encoder layer they attend to the embedded context and then to one another.
    Encoding N points takes O(N n + n^2), M targets O(M n).
    """

    num_latents: Count = 128

    def setup(self):
        super().setup()
        shape = self.num_latents, self.features
        self.latents = parameter(self, "latents", nn.initializers.normal(1.0), shape)
        self.encoder = [LatentLayer(functools.partial(PerceiverBlock, **self.sizes())) for _ in range(self.num_layers)]

    def levels(self, context: Points) -> Sequence[tuple[jax.Array, None]]:
        """num_layers times latents [..., num_latents, features]."""
        points, latents, levels = self.embedder(context.x, context.y), self.latents, []
        apply = traced_once(self.encoder, self.copy_layers)
        for layer in self.encoder:
            latents = apply(layer, latents, points, mask=context.mask)
            levels.append((latents, None))
        return levels


class LBANPND(JointProcess, LBANP):
    """LBANP with one multivariate normal for all targets (Feng et al. 2023, CMANP, arXiv 2305.14567, Section 4)."""


def branch_names(theirs: str, ours: str) -> list:
    """Renamings of an attention or a GEGLU behind its LayerNorm; `ours` may refer to groups of `theirs`."""
    return (
        [(rf"{theirs}\.fn\.net\.{index}", f"{ours}/fn/net_{index}") for index in (0, 2)]
        + [(rf"{theirs}\.fn\.{name}", f"{ours}/fn/{name}") for name in ("to_q", "to_kv", "to_out")]
        + [(rf"{theirs}\.{name}", f"{ours}/{name}") for name in ("norm", "norm_context")]
    )


# For kvq_jax.models.torch_names: what CMANP has too, and all of the models here.
FRAME_NAMES = [
    ("", ""),  # the latents
    ("norm", "norm"),
    *mlp_names("(embedder|query_embedder|predictor)", r"\1"),
    *branch_names(r"decoder\.layers\.(\d+)\.cross_attn", r"decoder_\1/attention"),
    *branch_names(r"decoder\.layers\.(\d+)\.cross_ff", r"decoder_\1/feed_forward"),
    *HEAD_NAMES,
]
TORCH_NAMES = [
    *FRAME_NAMES,
    *branch_names(r"encoder\.layers\.(\d+)\.dataset_self_attn", r"encoder_\1/attention"),
    *branch_names(r"encoder\.layers\.(\d+)\.ff", r"encoder_\1/feed_forward"),
    *branch_names(r"encoder\.layers\.(\d+)\.(cross|latent)(?:_self)?_attn", r"encoder_\1/\2/attention"),
    *branch_names(r"encoder\.layers\.(\d+)\.(cross|latent)_ff", r"encoder_\1/\2/feed_forward"),
]
