"""From a set of images to k rows, or to a logit of each: the Set Transformer (Lee et al. 2019) behind convolutions."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.models.set_networks import SET_NETWORKS, SetNetwork
from kvq_jax.nn import MLP, BatchNorm
from kvq_jax.nn.image_encoders import Convolution


class ImageSetNetwork(SetNetwork):
    """A SetNetwork whose elements are images.

    Each image passes through blocks of [3 x 3 convolution of stride 2, batch norm, ReLU] and is flattened: 256 features
    of 28 x 28 pixels. Batch norm takes the statistics of all images of a batch that are there, and otherwise their
    running averages. The convolutions have no bias, which batch norm would remove.

    The paper's architecture of Section 5.2 prints PMA with 8 heads behind SABs with 4. Raises as SetNetwork.
    """

    features: Sequence[int] = (64, 64, 64, 64)
    pool_heads: int = 8  # of PMA

    @property
    def pma(self) -> dict[str, int]:
        """The fields of the PMA that are not those of all blocks."""
        return dict(num_seeds=self.num_seeds, num_heads=self.pool_heads)

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None, train: bool = False) -> Array:
        """x [..., N, H, W, C] float, mask [..., N] -> [..., num_outputs, out_features]."""
        return super().__call__(self.convolved(x, mask, train), mask=mask)

    def convolved(self, x: Array, mask: Array | None, train: bool) -> Array:
        """The features of each image, for `__call__`: [..., N, H, W, C] -> [..., N, f]."""
        for index, features in enumerate(self.features):
            x = Convolution(features, stride=2, name=f"convolution_{index}")(x)
            x = nn.relu(BatchNorm("running", name=f"norm_{index}")(x, train, mask))
        return x.reshape(*x.shape[:-3], -1)


class ImageSetDetector(ImageSetNetwork):
    """A logit for each image of a set, given the others: head(z_i, pool(Z)) of what the encoder makes of them, Z.

    The head is ours. The paper's network (Section 5.4; supplement, Table 9) ends in 256 features for each of eight
    images, of which it does not say how they become scores. num_outputs and out_features are not used.

    Raises as SetNetwork.
    """

    @nn.compact
    def __call__(self, x: Array, *, mask: Array | None = None, train: bool = False) -> Array:
        """x [..., N, H, W, C] float, mask [..., N] -> [..., N]; an absent image has the least float32."""
        encoded = self.encoded(self.convolved(x, mask, train), mask)
        rows = self.pooled(encoded, mask)
        together = rows.reshape(*rows.shape[:-2], 1, -1)
        logits = MLP((*self.head, 1), **self.inits, name="head")(encoded, together)[..., 0]
        return logits if mask is None else jnp.where(mask, logits, jnp.finfo(logits.dtype).min)


# The rows of SET_NETWORKS, for images.
IMAGE_SET_NETWORKS = {name: row._replace(cls=ImageSetNetwork) for name, row in SET_NETWORKS.items()}
IMAGE_SET_DETECTORS = {name: row._replace(cls=ImageSetDetector) for name, row in SET_NETWORKS.items()}
