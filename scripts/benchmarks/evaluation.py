"""What the evaluation of a published run costs beside its training: gp.py as it is configured, preset `paper`.

Some steps and the evaluation of some functions are timed in turns. Both are then counted up to the numbers that the
config has: the share says how much longer a run takes because it is evaluated once, at its end.
"""

import functools
from collections.abc import Sequence

import jax

from configs.neural_processes import gp
from experiments.harness import timing
from scripts.benchmarks import training

# Batches for each size class. What is left over of a class is computed in the largest, so that few functions would cost
# more each than the many of a run.
_BATCHES, _STEPS, _TURNS = 8, 20, 3


def main(models: Sequence[str] = gp.MODELS, preset: str = "paper") -> None:
    """Prints a line for each model."""
    print(f"evaluation beside training, preset {preset}, one seed, float32, {jax.devices()[0].device_kind}")
    print(f"{'':16}{'ms a step':>11}{'ms a function':>15}{'steps':>9}{'functions':>11}{'share':>7}")
    for model in models:
        print(_line(model, preset))


def _line(model: str, preset: str) -> str:
    config = gp.get_config(f"model={model},preset={preset}")
    steps, functions = config.train.steps, config.evaluation.tasks
    config.evaluation.tasks = tasks = _BATCHES * config.train.size_classes * config.evaluation.batch_size
    experiment = training.build(config)
    variables = jax.jit(experiment.init)(jax.random.key(0))
    evaluate = jax.jit(functools.partial(experiment.evaluate, key=jax.random.key(1)))
    run = training.trainer(experiment, config, 1, _STEPS).run
    times = timing.interleaved([run, lambda: evaluate(variables, None)], _TURNS)
    step, function = timing.seconds(times, 0) / _STEPS, timing.seconds(times, 1) / tasks
    share = timing.ratio(times, 1, 0) * (functions / tasks) / (steps / _STEPS)
    return f"{model:16}{1e3 * step:11.1f}{1e3 * function:15.2f}{steps:9}{functions:11}{share:7.1%}"
