"""Image completion at the published settings: a training step, its sampling, and the memory of long contexts.

Training is that of images.py as it is configured, `paper`: N and M drawn for each batch of 100, computed in size
classes. The images are noise, so that no data are needed; nothing depends on what they show. Sampling is timed alone,
with random numbers and pixels of a batch in the class of the average size, in turns with the step.

Conditioning CMANP on all pixels of an image is measured by the compiler: its temporary memory, in chunks.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from configs.neural_processes import images
from experiments.harness import programs, settings, timing
from experiments.harness.experiment import Experiment
from experiments.harness.programs import Program
from experiments.harness.step import sample_batch
from experiments.regression.experiment import initialiser
from experiments.regression.experiment import training as trained_on
from experiments.tasks.image_completion import ImageCompletion
from experiments.tasks.pixels import pixel_positions
from kvq_jax.models import MODELS, Points
from kvq_jax.models.neural_processes import condition
from scripts.benchmarks import training

_DATA, _MODELS = ("emnist", "celeba32"), ("cnp", "tnp_d", "cmanp")
_SIDES, _CHUNK = (32, 64, 128), 256
_IMAGES, _STEPS, _TURNS, _BUDGET_S = 512, 4, 5, 4.0


def main(
    data: Sequence[str] = _DATA,
    models: Sequence[str] = _MODELS,
    sides: Sequence[int] = _SIDES,
    preset: str = "paper",
    budget_s: float = _BUDGET_S,
) -> None:
    """Prints a line for each model on each data set, and one for each side of an image."""
    print(f"image completion, preset {preset}, float32, {jax.devices()[0].device_kind}")
    for name in data:
        for model in models:
            print(_training_line(model, name, preset, budget_s))
    memories = [_conditioning_memory(side, preset) for side in sides]
    for side, memory in zip(sides, memories):
        print(
            f"cmanp            conditioning on {side}x{side} pixels in chunks of {_CHUNK}: {memory / 2**20:.2f} MiB, "
            f"{memory / memories[0]:.3f} times that of {sides[0]}x{sides[0]}"
        )


def _training_line(model: str, data: str, preset: str, budget_s: float) -> str:
    config = images.get_config(f"model={model},data={data},preset={preset}")
    task = settings.build(ImageCompletion, config.task, "config.task")
    module = settings.build_named(MODELS, config.model, "config.model")
    shape = (_IMAGES, config.data.size, config.data.size, config.model.dim_y)
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    parts = trained_on(module, task, config.train.size_classes)
    made = Experiment(initialiser(module, task, noise), evaluate=None, examples=None, data={"train": noise}, **parts)
    classes, pixels = made.sizes.classes, jax.device_put(noise)
    average = min(classes.classes, key=lambda slots: abs(np.dot(slots, classes.costs) - _mean_cost(classes)))

    @jax.jit
    def sample(key):
        drawn = sample_batch(made, key, pixels, config.train.batch_size)
        return jax.vmap(lambda draws: made.sizes.fill(draws, average, None))(drawn)[:2]

    run = training.trainer(made, config, 1, _STEPS).run
    times = timing.interleaved([run, lambda: sample(jax.random.key(0))], _TURNS, budget_s)
    step = timing.seconds(times, 0) / _STEPS
    return (
        f"{model:16} {data:9} batch {config.train.batch_size}, waste {classes.waste:.2f}, step {1e3 * step:8.1f} ms, "
        f"sampling {_STEPS * timing.ratio(times, 1, 0):6.1%} of it"
    )


def _mean_cost(classes) -> float:
    used = np.array([np.dot(slots, classes.costs) for slots in classes.classes])
    return float(used @ classes.probabilities)


def _conditioning_memory(side: int, preset: str) -> int:
    """Bytes beside arguments and results of CMANP's state after all pixels of an image."""
    config = images.get_config(f"model=cmanp,data=celeba128,preset={preset}")
    model = settings.build_named(MODELS, config.model, "config.model")
    x = pixel_positions(side, side)
    context = Points(x, jnp.zeros((len(x), config.model.dim_y)))
    some = Points(context.x[:3], context.y[:3])
    variables = jax.eval_shape(lambda key: model.init(key, some, some.x), jax.random.key(0))

    def remember(variables, x, y):
        return condition(model, variables, Points(x, y), _CHUNK)

    return programs.memory(Program(remember, (variables, context.x, context.y)))
