"""Image encoders of few-shot classification: the four convolutions of matching networks, and ResNet-12.

    encoder(image [..., n, H, W, C], train) -> features [..., n, f]

The n images are those of one episode; any dimensions before them. Computes in its dtype, float32 without one. All
fields are plain values, so that a config can hold them.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from kvq_jax.domains import Count, Part
from kvq_jax.names import choose
from kvq_jax.nn.block import Block
from kvq_jax.nn.mlp import parameter, product


def _of_the_episode(norm: "BatchNorm", x: Array, train: bool, there: Array | None) -> tuple[Array, Array]:
    """Mean and variance [..., 1, 1, 1, C] over images and positions of each episode, in training and evaluation."""
    return _moments(x, (-4, -3, -2), there)


def _running(norm: "BatchNorm", x: Array, train: bool, there: Array | None) -> tuple[Array, Array]:
    """In training the moments of all that is there, which the averages follow; otherwise the averages [C]."""
    features = x.shape[-1:]
    starts = {"mean": jnp.zeros, "variance": jnp.ones}
    averages = [norm.variable("batch_stats", name, start, features) for name, start in starts.items()]
    if not train:
        return averages[0].value, averages[1].value
    moments = _moments(x, tuple(range(x.ndim - 1)), there)
    if not norm.is_initializing():
        any_there = True if there is None else there.any()
        for average, moment in zip(averages, moments):
            new = norm.momentum * average.value + (1 - norm.momentum) * moment.reshape(features)
            average.value = jnp.where(any_there, new, average.value)
    return moments


def _moments(x: Array, axes: tuple[int, ...], there: Array | None) -> tuple[Array, Array]:
    """Mean and variance of what is there; 0 where nothing is."""
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    if there is None:
        mean = x.mean(axes, keepdims=True)
        return mean, jnp.square(x - mean).mean(axes, keepdims=True)
    count = jnp.maximum(jnp.broadcast_to(there, x.shape).sum(axes, keepdims=True), 1)
    mean = x.sum(axes, keepdims=True, where=there) / count
    return mean, jnp.square(x - mean).sum(axes, keepdims=True, where=there) / count


# Name -> (module, x, train, which images are there [..., n, 1, 1, 1]) -> mean and variance to normalise with.
STATISTICS = {"transductive": _of_the_episode, "running": _running}


class BatchNorm(Block):
    """Batch normalisation (Ioffe and Szegedy 2015, arXiv 1502.03167) with a choice of statistics.

        y = scale (x - mean) / sqrt(variance + epsilon) + bias

    'transductive': the statistics of the episode, targets included, in training and in evaluation. MAML and many other
    published few-shot models do this. A prediction then depends on the other targets, which is worth some points.
    'running': in training the statistics of all episodes of the batch; in evaluation their running averages, kept in
    the collection 'batch_stats'. Every target is then predicted by itself.
    """

    statistics: str = "transductive"  # a name of STATISTICS
    momentum: float = 0.9  # of the averages
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: Array, train: bool, mask: Array | None = None) -> Array:
        """x [..., n, H, W, C] -> the same shape. Images that mask [..., n] leaves out count in no statistics."""
        there = None if mask is None else mask[..., None, None, None]
        x = x if there is None else jnp.where(there, x, 0)
        scale = parameter(self, "scale", nn.initializers.ones, x.shape[-1:])
        bias = parameter(self, "bias", nn.initializers.zeros, x.shape[-1:])
        mean, variance = choose(STATISTICS, self.statistics, "statistics")(self, x, train, there)
        return self.cast((x - mean) * (scale * jax.lax.rsqrt(variance + self.epsilon)) + bias)[0]


def max_pool(x: Array) -> Array:
    """The maximum of each 2 x 2 pixels, [..., H, W, C] -> [..., H // 2, W // 2, C].

    An odd last row or column is left out. Pairwise maxima: a fast gradient on CPU, where that of a window reduction is
    many times slower. The gradient of a maximum over an axis divides by the number of places that equal it, which is 0
    where XLA computes a map twice and rounds it in two ways.

    Raises ValueError for fewer than 2 x 2 pixels.
    """
    *leading, height, width, features = x.shape
    if min(height, width) < 2:
        raise ValueError(f"a map of {height} x {width} cannot be halved: the images are too small for this encoder")
    rows, columns = height // 2, width // 2
    x = x[..., : 2 * rows, : 2 * columns, :].reshape(*leading, rows, 2, columns, 2, features)
    x = jnp.maximum(x[..., 0, :, :, :], x[..., 1, :, :, :])
    return jnp.maximum(x[..., 0, :], x[..., 1, :])


def drop_block(x: Array, key: Array, rate: float, size: int) -> Array:
    """DropBlock (Ghiasi et al. 2018, arXiv 1810.12890): zeroes squares of size x size in each map, rescales the rest.

    x [..., H, W, C]. About the share `rate` is dropped: centres are drawn at rate / size^2, corrected for the border. A
    `size` above H or W is the whole map's.
    """
    height, width = x.shape[-3:-1]
    size = min(size, height, width)
    inside = (height - size + 1) * (width - size + 1)
    corners = jax.random.bernoulli(key, rate * height * width / (size**2 * inside), x.shape)
    fits = (jnp.arange(height)[:, None] <= height - size) & (jnp.arange(width) <= width - size)
    corners = corners & fits[..., None]
    flat = corners.reshape(-1, *x.shape[-3:]).astype(x.dtype)
    padded = jnp.pad(flat, ((0, 0), (size - 1, 0), (size - 1, 0), (0, 0)))
    dropped = nn.max_pool(padded, (size, size)).reshape(x.shape)
    kept = 1 - dropped
    wide = jnp.promote_types(x.dtype, jnp.float32)  # half of the precision does not count so far
    return x * kept * (kept.size / jnp.maximum(kept.sum(dtype=wide), 1)).astype(x.dtype)


class Convolution(Block):
    """A convolution of size x size pixels, size odd, without bias, padded with zeros to keep the shape.

    With a stride s the windows lie around each s-th pixel, the first one among them: ceil(H / s) x ceil(W / s) remain.

    On CPU it is products of two matrices, windows times the kernel: gradients of XLA's own convolutions are ten times
    slower inside a loop, such as that over training steps. Elsewhere it is XLA's.
    """

    features: int
    size: int = 3  # pixels of a side of the window, odd
    stride: int = 1

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [..., H, W, C] -> [..., H, W, features], or with a stride what is left of H and W."""
        shape = self.size, self.size, x.shape[-1], self.features
        kernel, x = parameter(self, "kernel", nn.initializers.he_normal(), shape), self.cast(x)[0]
        images = x.reshape(-1, *x.shape[-3:])
        by_windows, by_xla = (functools.partial(f, stride=self.stride) for f in (_by_windows, _by_xla))
        output = jax.lax.platform_dependent(images, kernel, cpu=by_windows, default=by_xla)
        return output.reshape(*x.shape[:-3], *output.shape[1:])


_ALL = 2**26  # bytes of windows, above which they are made and used in parts
_PART = 2**20  # bytes of a part, which stays in a cache


def _by_windows(images: Array, kernel: Array, stride: int) -> Array:
    """All images at once, or many a few at a time; a gradient then makes their windows again."""
    number, *shape = images.shape
    places = -(-shape[0] // stride) * -(-shape[1] // stride)
    bytes_of_image = places * kernel[..., 0].size * images.dtype.itemsize
    if number * bytes_of_image <= _ALL:
        return _by_all_windows(images, kernel, stride)
    parts = -(-number // max(_PART // bytes_of_image, 1))
    each = -(-number // parts)
    filled = jnp.pad(images, [(0, parts * each - number), (0, 0), (0, 0), (0, 0)]).reshape(parts, each, *shape)
    output = jax.lax.map(jax.checkpoint(lambda part: _by_all_windows(part, kernel, stride)), filled)
    return output.reshape(-1, *output.shape[2:])[:number]


def _by_all_windows(images: Array, kernel: Array, stride: int) -> Array:
    size, (_, height, width, _) = len(kernel), images.shape
    around = (size // 2, size // 2)
    padded = jnp.pad(images, [(0, 0), around, around, (0, 0)])
    corners = [(row, column) for row in range(size) for column in range(size)]
    windows = jnp.concatenate([padded[:, i : i + height : stride, j : j + width : stride] for i, j in corners], -1)
    return product(windows, kernel.reshape(windows.shape[-1], -1))


def _by_xla(images: Array, kernel: Array, stride: int) -> Array:
    around = [(len(kernel) // 2,) * 2] * 2
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), around, dimension_numbers=numbers)


class ConvEncoder(Block):
    """Blocks of [3 x 3 convolution, batch norm, ReLU, 2 x 2 max pool], flattened: the encoder of matching networks.

    Vinyals et al. 2016 (arXiv 1606.04080), with four blocks of 64 filters: 1600 features of an 84 x 84 image, 64 of 28
    x 28. MAML has 32 filters. The convolutions have no bias, which batch norm would remove.

    Raises ValueError for images too small to be halved by every block too.
    """

    features: Sequence[Count] = (64, 64, 64, 64)
    statistics: str = "transductive"  # a name of STATISTICS

    @nn.compact
    def __call__(self, image: Array, train: bool = False) -> Array:
        x = image.astype(jnp.float32)
        for index, features in enumerate(self.features):
            x = Convolution(features, name=f"convolution_{index}")(x)
            x = max_pool(nn.relu(BatchNorm(self.statistics, name=f"norm_{index}")(x, train)))
        return x.reshape(*x.shape[:-3], -1)


class ResNet12(Block):
    """Four residual blocks of three 3 x 3 convolutions, each block followed by a 2 x 2 max pool (He et al. 2016).

    In each block: [convolution, batch norm] three times with LeakyReLU(0.1) between, plus a shortcut of a 1 x 1
    convolution and batch norm, then LeakyReLU and 2 x 2 max pool. Two widths are published: the default is that of
    MetaOptNet (Lee et al. 2019, arXiv 1904.03758), the other (64, 128, 256, 512). The Intention paper (Appendix 5) does
    not say which; its accuracy is that of networks without regularisation, which is the default here. drop_rate=0.1 is
    MetaOptNet's: dropout in the first two blocks, DropBlock of 5 x 5 in the others. Ours is constant; theirs increases
    over 40,000 steps.

    Features: 16,000 of an 84 x 84 image, 640 of 28 x 28, and 640 of any with `pool`, the mean over positions.
    Raises ValueError for images too small to be halved by every block too.
    """

    features: Sequence[Count] = (64, 160, 320, 640)
    statistics: str = "transductive"  # a name of STATISTICS
    pool: bool = False  # whether the features are their mean over positions
    drop_rate: Part = 0.0  # with a random stream 'dropout'
    drop_size: Count = 5  # of the squares of DropBlock

    @nn.compact
    def __call__(self, image: Array, train: bool = False) -> Array:
        x = image.astype(jnp.float32)
        for index, features in enumerate(self.features):
            x = self._drop(max_pool(self._block(x, features, f"block_{index}", train)), index, train)
        x = x.mean((-3, -2)) if self.pool else x
        return x.reshape(*image.shape[:-3], -1)

    def _block(self, x: Array, features: int, name: str, train: bool) -> Array:
        activation: Callable = functools.partial(nn.leaky_relu, negative_slope=0.1)

        def layer(x, size, part):
            x = Convolution(features, size, name=f"{name}_convolution_{part}")(x)
            return BatchNorm(self.statistics, name=f"{name}_norm_{part}")(x, train)

        branch = activation(layer(x, 3, "0"))
        branch = activation(layer(branch, 3, "1"))
        return activation(layer(branch, 3, "2") + layer(x, 1, "shortcut"))

    def _drop(self, x: Array, index: int, train: bool) -> Array:
        if not train or self.drop_rate == 0:
            return x
        size = 1 if index < 2 else self.drop_size  # a square of one value is dropout
        return drop_block(x, self.make_rng("dropout"), self.drop_rate, size)


ENCODERS = {"conv": ConvEncoder, "resnet12": ResNet12}
