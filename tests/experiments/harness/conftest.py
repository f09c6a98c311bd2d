"""A small experiment with a known answer, on which the harness is tested without any model."""

import sys
import types

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from configs import common
from experiments.harness.experiment import Experiment


@pytest.fixture
def line() -> Experiment:
    """Fits y = w x to y = data * x: the loss is (w - data)^2 times the mean of x^2."""

    def init(key):
        return {"params": {"w": jax.random.normal(key)}, "batch_stats": {"seen": jnp.zeros((), jnp.int32)}}

    def sample(key, data):
        x = jax.random.normal(key)
        return x, data * x

    def loss(variables, batch, key):
        x, y = batch
        error = jnp.mean((variables["params"]["w"] * x - y) ** 2)
        return error, (
            {"largest": jnp.abs(x).max()},
            {"batch_stats": {"seen": variables["batch_stats"]["seen"] + x.size}},
        )

    def evaluate(variables, data, key):
        return {"error": (variables["params"]["w"] - data) ** 2 * jnp.arange(1.0, 4.0)}

    def examples(variables, data, key):
        return {"prediction": variables["params"]["w"], "x": jax.random.normal(key)}

    data = {split: jnp.float32(3.0) for split in ("train", "validation", "test")}
    return Experiment(init, sample, loss, evaluate, examples, data)


@pytest.fixture
def config(monkeypatch, line) -> ConfigDict:
    module = types.SimpleNamespace(SECTIONS=(), build=lambda config, evaluation, data_dir: line)
    monkeypatch.setitem(sys.modules, "experiments.paper.line.experiment", module)
    every = dict(log_every=1, validate_every=2, checkpoint_every=2)
    return ConfigDict(
        {
            "name": "paper/line",
            "experiment": "paper.line",
            "axes": {"preset": "tiny"},
            "train": common.train(4, 2, select="best", **every),
            "optimizer": common.optimizer("adam", 0.1),
            "evaluation": common.evaluation(validation_batches=1),
        }
    )
