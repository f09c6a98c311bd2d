"""The training of a config as one compiled program, for the benchmarks that measure it."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.harness import programs
from experiments.harness.experiment import Experiment
from experiments.harness.launch import experiment_module, split_evaluation
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.placement import build_placement
from experiments.harness.step import Program, make_init, make_program, make_step


class Trainer(NamedTuple):
    """Training of some seeds."""

    run: Callable[[], dict[str, jax.Array]]  # makes a chunk of steps of every seed and returns their metrics
    compiled: jax.stages.Compiled  # the chunk


def build(config: ConfigDict, data_dir: str | None = None) -> Experiment:
    """The experiment of a config. Raises as its module does."""
    return experiment_module(config).build(config, split_evaluation(config.evaluation)[1], data_dir)


def program(
    experiment: Experiment, config: ConfigDict, seeds: int, chunk_steps: int, placement: str = "single"
) -> Program:
    """What a run of `config` would run, on one device, with chunks of `chunk_steps`."""
    parts = {name: config.train[name] for name in ("batch_size", "micro_batches")}
    return make_program(
        experiment,
        build_optimizer(OptimizerSettings(**config.optimizer), config.train.steps),
        build_placement(placement, seeds=seeds, **parts),
        **parts,
        chunk_steps=chunk_steps,
        validation_batches=1,
        evaluation_seed=0,
    )


def flops(experiment: Experiment, config: ConfigDict, slots: tuple[int, int]) -> float:
    """Floating-point work of one step of one seed, by the compiler's count, in batches that fill `slots`."""

    def sample(key, data):
        return experiment.sizes.fill(experiment.sample(key, data), slots, None)

    filled = dataclasses.replace(experiment, sample=sample, sizes=None)
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), config.train.steps)
    state = jax.eval_shape(make_init(filled, optimizer), jnp.uint32(0))
    step = make_step(filled, optimizer, config.train.batch_size)
    return programs.operations(programs.Program(step, (state, experiment.data["train"])))


def trainer(
    experiment: Experiment, config: ConfigDict, seeds: int, chunk_steps: int, placement: str = "single"
) -> Trainer:
    """Training of `seeds` seeds in chunks of `chunk_steps`; its state is kept between runs."""
    made, data = program(experiment, config, seeds, chunk_steps, placement), jax.device_put(experiment.data["train"])
    state = made.init(jnp.arange(seeds, dtype=jnp.uint32))
    compiled = made.chunk.lower(state, data).compile()

    def run():
        nonlocal state
        state, metrics, _ = compiled(state, data)
        return metrics

    return Trainer(run, compiled)
