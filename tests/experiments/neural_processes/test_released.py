"""Released weights give the numbers that their table has, on functions drawn anew."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import kvq_jax
from configs.neural_processes import gp
from experiments.harness import settings
from experiments.harness.launch import experiment_module, split_evaluation
from experiments.tasks.gaussian_process import GaussianProcess

RESULTS = Path(__file__).parents[3] / "results"
FUNCTIONS = 64  # of each kernel


RELEASED = sorted(path.parent for path in (RESULTS / "weights" / "neural_processes" / "gp").glob("*/model.json"))
each_of = functools.partial(pytest.mark.parametrize, "released", ids=lambda folder: folder.name)


@pytest.fixture(scope="module")
def drawn():
    """Kernel -> functions of the published protocol, each of a size of its own: of all models alike."""
    task = settings.build(GaussianProcess, gp.get_config("preset=paper").task, "config.task")
    keys = jax.random.split(jax.random.key(2**20), FUNCTIONS)
    sample = lambda kernel: jax.vmap(lambda key: dataclasses.replace(task, kernel=kernel).sample(key, None))
    return {kernel: jax.jit(sample(kernel))(keys) for kernel in ("rbf", "matern")}


def result_of(released) -> dict:
    (path,) = (RESULTS / "neural_processes" / "gp").glob(f"{released.name}-????????/result.json")
    return json.loads(path.read_text())


def check(result, kernel, found):
    ours, table = np.asarray(found, np.float64), result["metrics"][f"trained/{kernel}/target"]["seeds"][0]
    assert ours.shape == (FUNCTIONS,) and abs(ours.mean() - table) < 4 * ours.std() / FUNCTIONS**0.5


def test_every_model_is_released():
    assert {result_of(released)["axes"]["model"] for released in RELEASED} == set(gp.MODELS)


@each_of(RELEASED)
def test_released_weights_have_the_numbers_of_their_run(released, drawn):
    result, trained = result_of(released), kvq_jax.load(released)
    judge = jax.jit(
        lambda task: trained.predict(task.context, task.target, key=jax.random.key(0), method="log_likelihood")
    )
    for kernel, functions in drawn.items():
        check(result, kernel, judge(functions))


@each_of([folder for folder in RELEASED if folder.name.startswith(("cnp-", "tnp_d-"))])
def test_their_experiment_evaluates_them_to_the_numbers_of_their_run(released):
    result = result_of(released)
    config = ConfigDict(result["config"])
    config.evaluation.update(tasks=FUNCTIONS, batch_size=16)
    config.train.size_classes = 1
    experiment = experiment_module(config).build(config, split_evaluation(config.evaluation)[1], None)
    evaluate = jax.jit(functools.partial(experiment.evaluate, key=jax.random.key(2**20)))
    found = evaluate(kvq_jax.load(released).variables, None)
    for kernel in ("rbf", "matern"):
        check(result, kernel, found[f"{kernel}/target"])
