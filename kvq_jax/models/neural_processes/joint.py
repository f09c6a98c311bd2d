"""A CovarianceHead as part of a model: TNP-ND, LBANP-ND and CMANP-AND."""

import dataclasses

from kvq_jax.domains import Count, Depth, NotNegative
from kvq_jax.models.torch_names import Renaming, encoder_names, mlp_names
from kvq_jax.nn.block import Block
from kvq_jax.nn.covariance_head import CovarianceHead

# Of a head that the model calls `head`.
HEAD_NAMES: tuple[Renaming, ...] = (
    *encoder_names("std_encoder", "head/std_encoder"),
    *mlp_names("(mean_net|projector|diag_net)", r"head/\1"),
)


class JointHead(Block):
    """The head and its own fields, for a model that has the sizes and the op of a transformer."""

    likelihood = "joint"

    std_layers: Depth = 2
    rank: Count = 20
    projector_depth: Depth = 4
    diagonal_depth: Depth = 4
    covariance: str = "cholesky"  # a name of kvq_jax.nn.covariance_head.COVARIANCES
    bound: bool = False
    jitter: NotNegative = 0.0

    def setup(self):
        super().setup()
        others = {field.name for field in dataclasses.fields(CovarianceHead)} - {"num_layers", "parent", "name"}
        self.head = CovarianceHead(num_layers=self.std_layers, **{name: getattr(self, name) for name in others})
