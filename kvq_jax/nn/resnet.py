"""Residual networks of basic blocks (He et al. 2016, arXiv 1512.03385), laid out to take torchvision's weights."""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from flax import linen as nn
from jax import Array, image

from kvq_jax.nn.block import Block

# Name -> blocks of each stage.
RESNETS = {"ResNet-18": (2, 2, 2, 2), "ResNet-34": (3, 4, 6, 3)}
# The colours of ImageNet, of 0 to 1: what published weights expect an image to be normalised by.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class BasicBlock(Block):
    """relu(BN(conv(relu(BN(conv(x))))) + shortcut(x)), with 3x3 convolutions, the first of which strides.

    The shortcut is the identity, or BN(conv 1x1) where the shape changes (option B of the paper).
    """

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array, *, train: bool = False) -> Array:
        """x [B, H, W, c] -> [B, ceil(H / stride), ceil(W / stride), features]."""
        norm, conv = _norm(train, **self.for_flax), functools.partial(_conv, self.features, **self.for_flax)
        y = nn.relu(norm(name="bn1")(conv(3, self.stride, name="conv1")(x)))
        y = norm(name="bn2")(conv(3, name="conv2")(y))
        if self.stride != 1 or x.shape[-1] != self.features:
            x = norm(name="downsample_bn")(conv(1, self.stride, name="downsample_conv")(x))
        return nn.relu(x + y)


class ResNet(Block):
    """A 7x7 convolution and a 3x3 maximum, each of stride 2, stages of basic blocks, and the mean over all pixels.

    Stage s = 0, 1, ... has blocks[s] blocks of width 2^s width. All stages but the first halve the image. The default
    is ResNet-34, whose features are the 512 of Garnelo and Czarnecki 2023 (arXiv 2305.10203, Appendix 8). Batch
    normalisation uses its running statistics; with `train` it uses the batch's and updates them (collection
    'batch_stats').
    """

    blocks: Sequence[int] = RESNETS["ResNet-34"]  # of each stage
    width: int = 64  # of the first stage; each further one is twice as wide
    classes: int = 0  # outputs of the linear layer behind the features, 1000 for ImageNet; 0: there is none

    @nn.compact
    def __call__(self, images: Array, *, train: bool = False) -> tuple[Array, Array | None]:
        """images [B, H, W, 3], normalised -> (features [B, 2^(stages - 1) width], logits [B, classes] or None)."""
        x = _conv(self.width, 7, 2, name="conv1", **self.for_flax)(images)
        x = nn.relu(_norm(train, **self.for_flax)(name="bn1")(x))
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        for stage, blocks in enumerate(self.blocks):
            for index in range(blocks):
                stride = 2 if stage and not index else 1
                x = BasicBlock(self.width << stage, stride, name=f"layer{stage + 1}_{index}")(x, train=train)
        features = x.mean((-3, -2))
        return features, nn.Dense(self.classes, name="fc", **self.for_flax)(features) if self.classes else None


def imagenet_input(images: Array, size: int = 224) -> Array:
    """Images [B, H, W, 3] of 0 to 255 as ImageNet networks expect them: resized, normalised, [B, size, size, 3]."""
    images = image.resize(images.astype(jnp.float32) / 255, (len(images), size, size, 3), "bilinear")
    return (images - jnp.array(IMAGENET_MEAN)) / jnp.array(IMAGENET_STD)


def _conv(features: int, size: int, stride: int = 1, **options) -> nn.Conv:
    """A convolution without bias; it pads evenly, as PyTorch does, where 'SAME' with a stride pads one end more."""
    init = nn.initializers.he_normal()
    return nn.Conv(features, (size, size), stride, size // 2, use_bias=False, kernel_init=init, **options)


def _norm(train: bool, **options) -> functools.partial:
    return functools.partial(nn.BatchNorm, use_running_average=not train, momentum=0.9, epsilon=1e-5, **options)
