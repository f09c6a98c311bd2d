"""CMANP and CMANP-AND: a context in constant memory (Feng et al. 2023, CMANP, arXiv 2305.14567)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict

from kvq_jax.domains import Count
from kvq_jax.models.neural_processes import predictive
from kvq_jax.models.neural_processes.conditioning import in_blocks
from kvq_jax.models.neural_processes.lbanp import FRAME_NAMES, JointProcess, LevelProcess, branch_names
from kvq_jax.models.points import Points
from kvq_jax.nn import CMAB, Op
from kvq_jax.nn.mlp import parameter
from kvq_jax.nn.stack import traced_once


class CMANP(LevelProcess):
    """Constant Memory Attentive Neural Process (Section 3.3): LBANP's decoder on latents of CMABs.

    Only the first attention of each block sees the context, and its queries are parameters: the context may come in
    parts, see `update`. A state holds what those attentions keep, for each block; its size does not depend on the
    number of points. An update embeds the new points once; each block projects them and scores them with its queries.
    All work among latents waits for `finish`, whose memory is the levels.

    `cross_op` (None: op) is the op of those attentions. If it has no stream in kvq_jax.ops.OPERATORS, the context has
    to be given at once.
    """

    num_latents: Count = 128  # L_I, the rows of a level
    num_block_latents: Count = 128  # L_B, in each block
    cross_op: Op | None = None

    def setup(self):
        super().setup()
        shape = self.num_latents, self.features
        self.latents = parameter(self, "latents", nn.initializers.normal(1.0), shape)
        fields = dict(cross_op=self.cross_op, **self.sizes())
        self.encoder = [CMAB(self.num_block_latents, **fields) for _ in range(self.num_layers)]

    def levels(self, context: Points) -> Sequence[tuple[jax.Array, None]]:
        """num_layers times latents [..., num_latents, features]."""
        points, apply = self.embedder(context.x, context.y), traced_once(self.encoder, self.copy_layers)
        return self._stack(lambda i, latents: apply(self.encoder[i], latents, points, mask=context.mask))

    def init_state(self, batch: tuple[int, ...] = ()) -> tuple:
        """The state of no context: one state of the stream of `cross_op` for each block, [*batch, num_heads, ...].

        Raises ValueError if that op has no state of constant size.
        """
        return tuple(block.init_state(batch) for block in self.encoder)

    def update(self, state: tuple, context: Points) -> tuple:
        """The state after more context (Sections 3.1.1 and 3.2); exact, in any order and any parts."""
        points = self.embedder(context.x, context.y)
        parts = zip(self.encoder, state, strict=True)
        return tuple(block.update(part, points, mask=context.mask) for block, part in parts)

    def merge(self, state: tuple, other: tuple) -> tuple:
        """The state of both contexts."""
        return tuple(block.merge(*parts) for block, *parts in zip(self.encoder, state, other, strict=True))

    def finish(self, state: tuple) -> Sequence[tuple[jax.Array, None]]:
        """The levels of all context in the state."""
        return self._stack(lambda i, latents: self.encoder[i].read(state[i], latents))

    def _stack(self, block) -> Sequence[tuple[jax.Array, None]]:
        levels, latents = [], self.latents
        for i in range(self.num_layers):
            latents = block(i, latents)
            levels.append((latents, None))
        return levels


class IntentionCMANP(CMANP):
    """CMANP whose blocks read the context by Intention. Not published elsewhere."""

    cross_op: Op | None = FrozenDict(name="intention", alpha=0.1, alpha_kind="softplus")


class CMANPAND(JointProcess, CMANP):
    """CMANP-AND (Section 3.3.1): one multivariate normal for all targets in training, one for each block in evaluation.

    The log-likelihood follows the chain rule over blocks of `block_size` targets in the order given. Each block is
    predicted jointly and then becomes context with its true outputs, as in the released code. The text uses samples
    instead, as kvq_jax.models.neural_processes.conditioning.sample does. One block is CMANP-ND. A block_size of 5 is
    the paper's; the released code never sets it.
    """

    block_size: Count = 5

    def log_likelihood(self, context: Points, target: Points, *, key: jax.Array | None = None) -> jax.Array:
        """sum over blocks of log p(block | context, blocks before it) / M of each task, [...]."""

        def step(self, state, block):
            prediction = self.query(self.finish(state), block.x, block.mask)
            return self.update(state, block), predictive.log_prob(prediction, block.y, block.mask)

        state = self.update(self.init_state(context.x.shape[:-2]), context)
        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        _, of_block = scan(self, state, in_blocks(target, self.block_size))
        return jnp.sum(of_block, 0) / predictive.count(target.mask, target.x.shape[-2])


# For kvq_jax.models.torch_names.
TORCH_NAMES = [
    *FRAME_NAMES,
    (r"encoder\.layers\.(\d+)", r"encoder_\1"),
    *branch_names(r"encoder\.layers\.(\d+)\.(\w+)", r"encoder_\1/\2"),
]
