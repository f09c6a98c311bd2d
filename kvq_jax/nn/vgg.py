"""VGG networks (Simonyan and Zisserman 2015, arXiv 1409.1556) with batch normalisation, for small images."""

from collections.abc import Sequence

from flax import linen as nn
from jax import Array

from kvq_jax.domains import Count
from kvq_jax.nn.block import Block
from kvq_jax.nn.image_encoders import BatchNorm, Convolution, max_pool
from kvq_jax.nn.mlp import Linear


class VGG(Block):
    """Stages of [3 x 3 convolution, batch norm, ReLU], each followed by a 2 x 2 max pool; the mean over what remains.

    Stage s has convolutions[s] convolutions of width features[s]. The default is VGG-16 (configuration D) without its
    two wide layers: 512 features of an image of 32 x 32 pixels, of which one remains. The convolutions have no bias,
    which batch norm would remove. Batch normalisation uses its running statistics; with `train` it uses the batch's and
    updates them (collection 'batch_stats').

    Raises ValueError for images too small to be halved by every stage, and for stages that do not fit each other.
    """

    convolutions: Sequence[Count] = (2, 2, 3, 3, 3)  # of each stage
    features: Sequence[Count] = (64, 128, 256, 512, 512)
    classes: int = 0  # outputs of the linear layer behind the features; 0: there is none

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> tuple[Array, Array | None]:
        """images [B, H, W, 3], normalised -> (features [B, features[-1]], logits [B, classes] or None)."""
        if len(self.convolutions) != len(self.features):
            raise ValueError(f"{len(self.convolutions)} numbers of convolutions for {len(self.features)} widths")
        x = images
        for stage, (convolutions, features) in enumerate(zip(self.convolutions, self.features)):
            for index in range(convolutions):
                x = Convolution(features, name=f"convolution_{stage}_{index}")(x)
                x = nn.relu(BatchNorm("running", name=f"norm_{stage}_{index}")(x, train))
            x = max_pool(x)
        x = x.mean((-3, -2))
        return x, Linear(self.classes, name="classes_of")(x) if self.classes else None
