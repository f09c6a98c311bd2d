"""Test images seen through more and more of their pixels, and completed: the arrays that the pictures are drawn from.

Of P parts and E images of each. Bytes are in units of 1/255 of the range of a value. scripts.collect leaves arrays of
bytes out: they show images of data sets.

    counts [C]                                     numbers of observed pixels, the last of them all
    pixels [P, E, height * width]                  row * width + column, in the order in which pixels are observed
    truth [P, E, height, width, channels]          uint8
    prediction_mean, prediction_std [P, E, C, height, width, channels]     uint8
    prediction_samples [P, E, C, S, height, width, channels]               uint8, see `completed`
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from flax import linen as nn

from experiments.tasks.image_completion import CENTRE
from experiments.tasks.pixels import pixel_positions
from kvq_jax.models import Points
from kvq_jax.models.neural_processes.conditioning import sample


def completed(
    model: nn.Module, variables: Any, image: jax.Array, key: jax.Array, counts: Sequence[int], samples: int, most: int
) -> dict[str, jax.Array]:
    """The arrays above of one image [height, width, channels] uint8, without the axes P and E.

    `samples` images are drawn by a model that predicts jointly, block by block, each given those before it. Of a
    mixture (latents, bootstraps, rollouts) they are the means of its first parts. Other models have none.

    The model predicts in blocks of at most `most` pixels, the number of targets it has seen in training, each spread
    over the image: see gp.experiment.curve.
    """
    shape, pixels = image.shape, image[..., 0].size
    order_key, model_key, draw_key = jax.random.split(key, 3)
    order = jax.random.permutation(order_key, pixels)
    x, y = pixel_positions(*shape[:2]), image.reshape(pixels, -1) / 255.0 - CENTRE
    parts = next(parts for parts in range(-(-pixels // most), pixels + 1) if pixels % parts == 0)
    blocks = jnp.swapaxes(x.reshape(-1, parts, 2), 0, 1)

    def of_block(context: Points, x: jax.Array) -> dict[str, jax.Array]:
        found = model.apply(variables, context, x, key=model_key)
        mean, std = (rows.reshape(len(x), -1) for rows in (found.mean, jnp.sqrt(found.variance)))
        arrays = {"prediction_mean": mean, "prediction_std": std}
        if isinstance(found, dist.MixtureSameFamily):
            arrays["prediction_samples"] = jnp.moveaxis(found.component_distribution.mean[:, :samples], 0, 1)
        return arrays

    def of_count(count: jax.Array) -> dict[str, jax.Array]:
        context = Points(x[order], y[order], jnp.arange(pixels) < count)
        rows = jax.lax.map(lambda x: of_block(context, x), blocks)  # [parts, ..., size, channels]
        rows = {name: jnp.moveaxis(of, 0, -2) for name, of in rows.items()}
        if model.likelihood == "joint" and "prediction_samples" not in rows:
            settings = dict(key=draw_key, block_size=blocks.shape[1], num_samples=samples)
            drawn = sample(model, variables, context, blocks.reshape(-1, 2), **settings)
            rows["prediction_samples"] = jnp.swapaxes(drawn.reshape(samples, *blocks.shape[:2], -1), 1, 2)
        return {name: of.reshape(*of.shape[:-3], *shape) for name, of in rows.items()}

    found = jax.lax.map(of_count, jnp.asarray([*counts, pixels]))
    level = {name: 0.0 if name == "prediction_std" else CENTRE for name in found}
    in_bytes = {name: jnp.rint(255 * jnp.clip(of + level[name], 0, 1)).astype(jnp.uint8) for name, of in found.items()}
    return in_bytes | {"pixels": order, "truth": image}
