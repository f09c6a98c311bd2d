"""Test images seen through more and more of their pixels, and completed: the arrays that the pictures are drawn from.

Of P parts and E images of each. Bytes are in units of 1/255 of the range of a value. scripts.collect leaves arrays of
bytes out: they show images of data sets.

    counts [C]                                     numbers of observed pixels, the last of them all
    pixels [P, E, height * width]                  row * width + column, in the order in which pixels are observed
    truth [P, E, height, width, channels]          uint8
    prediction_mean, prediction_std [P, E, C, height, width, channels]     uint8
    prediction_samples [P, E, C, S, height, width, channels]               uint8, see `completed`

And what evaluation.example_shown names (ANP slides; Kim et al. 2019, arXiv 1901.05761, Section 4.2), by one model:

    half           prediction_half_mean, _std, _samples: as above, without C, from the upper half of the rows
    resolution     coarse [P, E, height / 4, width / 4, channels] uint8, the means of 4x4 pixels;
                   prediction_coarse_mean, _std, _samples: all pixels from these;
                   prediction_fine_mean, _std [P, E, 4 height, 4 width, channels]: from all pixels
    attention      prediction_attention [P, E, heads, height, width]: what each pixel counts for in the prediction of
                   one, in the row height // 3 and the column width // 3, when all are observed
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from flax import linen as nn

from experiments.harness import settings
from experiments.harness.errors import ConfigError
from experiments.neural_processes.predicting import spread
from experiments.tasks.image_completion import CENTRE
from experiments.tasks.pixels import pixel_positions
from kvq_jax.models import Points
from kvq_jax.models.neural_processes.conditioning import sample

FACTOR = 4  # of resolution mapping, on each side; ours: the slides show 4x4 to 32x32, and 32x32 to 256x256
ATTENDED = 3  # the pixel of the map of attention has this share of the height above it, and of the width on its left


def completed(
    model: nn.Module,
    variables: Any,
    image: jax.Array,
    key: jax.Array,
    counts: Sequence[int],
    samples: int,
    most: int,
    shown: Sequence[str] = (),
) -> dict[str, jax.Array]:
    """The arrays above of one image [height, width, channels] uint8, without the axes P and E; shown: names of DEMOS.

    `samples` images are drawn by a model that predicts jointly, block by block, each given those before it. Of a
    mixture (latents, bootstraps, rollouts) they are the means of its first parts. Other models have none.

    The model predicts in blocks of at most `most` pixels, the number of targets it has seen in training, each spread
    over the image: see predicting.spread.
    """
    order_key, *keys = jax.random.split(key, 3)
    order = jax.random.permutation(order_key, image[..., 0].size)
    points = points_of(image)
    predict = functools.partial(_predict, model, variables, keys, most)

    def of_count(count: jax.Array) -> dict[str, jax.Array]:
        context = Points(points.x[order], points.y[order], jnp.arange(len(order)) < count)
        return predict(context, image.shape, samples)

    found = jax.lax.map(of_count, jnp.asarray([*counts, len(order)]))
    arrays = {f"prediction_{name}": of for name, of in found.items()} | {"pixels": order, "truth": image}
    for name in shown:
        arrays |= DEMOS[name](model, variables, image, functools.partial(predict, samples=samples))
    return arrays


def points_of(image: jax.Array) -> Points:
    """All pixels of an image [height, width, channels] in row order: x [height * width, 2], y [., channels]."""
    return Points(pixel_positions(*image.shape[:2]), image.reshape(-1, image.shape[-1]) / 255.0 - CENTRE)


def half(model: nn.Module, variables: Any, image: jax.Array, predict: Callable) -> dict[str, jax.Array]:
    """The image from its upper half."""
    points, (height, width, _) = points_of(image), image.shape
    context = points._replace(mask=jnp.arange(height * width) < height // 2 * width)
    return {f"prediction_half_{name}": of for name, of in predict(context, image.shape).items()}


def resolution(model: nn.Module, variables: Any, image: jax.Array, predict: Callable) -> dict[str, jax.Array]:
    """The image from means of pixels, each at the middle of them, and at a higher resolution between its pixels."""
    height, width, channels = image.shape
    small, large = (height // FACTOR, width // FACTOR), (height * FACTOR, width * FACTOR)

    def pooled(rows: jax.Array) -> jax.Array:
        blocks = rows.reshape(small[0], FACTOR, small[1], FACTOR, -1)
        return blocks.mean((1, 3)).reshape(small[0] * small[1], -1)

    coarse = Points(*map(pooled, points_of(image)[:2]))
    found = {f"prediction_coarse_{name}": of for name, of in predict(coarse, image.shape).items()}
    fine = predict(points_of(image), (*large, channels), samples=0)
    found |= {f"prediction_fine_{name}": fine[name] for name in ("mean", "std")}
    return found | {"coarse": _bytes(coarse.y + CENTRE).reshape(*small, channels)}


def attention(model: nn.Module, variables: Any, image: jax.Array, predict: Callable) -> dict[str, jax.Array]:
    """The maps of the heads of the cross-attention at one pixel."""
    points, (height, width, _) = points_of(image), image.shape
    at = points.x[height // ATTENDED * width + width // ATTENDED][None]
    found = model.apply(variables, points, at, method="attention_weights")
    return {"prediction_attention": found.reshape(-1, height, width)}


DEMOS = {"half": half, "resolution": resolution, "attention": attention}


def check_shown(shown: Sequence[str], model: nn.Module, shape: tuple[int, int, int]) -> None:
    """Raises ConfigError for an unknown demonstration, and for one that model or images do not have."""
    key = "config.evaluation.example_shown"
    for name in shown:
        settings.choose(DEMOS, name, key)
    if "attention" in shown and not hasattr(model, "attention_weights"):
        raise ConfigError(f"{key}: {type(model).__name__} has no attention from targets to context to show")
    if "resolution" in shown and (shape[0] % FACTOR or shape[1] % FACTOR):
        raise ConfigError(f"{key}: resolution needs sides that {FACTOR} divides, not {shape[0]}x{shape[1]}")


def _predict(
    model: nn.Module,
    variables: Any,
    keys: Sequence[jax.Array],
    most: int,
    context: Points,
    shape: tuple[int, int, int],
    samples: int,
) -> dict[str, jax.Array]:
    """mean, std and, where the model has them, samples of an image of a shape; uint8."""
    model_key, draw_key = keys
    blocks = spread(pixel_positions(*shape[:2]), most)  # [parts, size, 2]

    def of_block(x: jax.Array) -> dict[str, jax.Array]:
        found = model.apply(variables, context, x, key=model_key)
        mean, std = (rows.reshape(len(x), -1) for rows in (found.mean, jnp.sqrt(found.variance)))
        arrays = {"mean": mean, "std": std}
        if isinstance(found, dist.MixtureSameFamily):
            arrays["samples"] = jnp.moveaxis(found.component_distribution.mean[:, :samples], 0, 1)
        return arrays

    rows = jax.lax.map(of_block, blocks)  # [parts, ..., size, channels]
    rows = {name: jnp.moveaxis(of, 0, -2) for name, of in rows.items()}
    if samples and model.likelihood == "joint" and "samples" not in rows:
        options = dict(key=draw_key, block_size=blocks.shape[1], num_samples=samples)
        drawn = sample(model, variables, context, blocks.reshape(-1, 2), **options)
        rows["samples"] = jnp.swapaxes(drawn.reshape(samples, *blocks.shape[:2], -1), 1, 2)
    images = {name: of.reshape(*of.shape[:-3], *shape) for name, of in rows.items()}
    return {name: _bytes(of if name == "std" else of + CENTRE) for name, of in images.items()}


def _bytes(values: jax.Array) -> jax.Array:
    return jnp.rint(255 * jnp.clip(values, 0, 1)).astype(jnp.uint8)
