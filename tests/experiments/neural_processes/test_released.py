"""Released weights give the numbers that their table has, on functions drawn anew."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import kvq_jax
from experiments.harness.launch import experiment_module, split_evaluation

RESULTS = Path(__file__).parents[3] / "results"
FUNCTIONS = 64  # of each kernel


@pytest.mark.parametrize(
    "released",
    sorted(path.parent for path in (RESULTS / "weights" / "neural_processes" / "gp").glob("*/model.json")),
    ids=lambda folder: folder.name,
)
def test_released_weights_have_the_numbers_of_their_run(released):
    (path,) = (RESULTS / "neural_processes" / "gp").glob(f"{released.name}-????????/result.json")
    result = json.loads(path.read_text())
    config = ConfigDict(result["config"])
    config.evaluation.update(tasks=FUNCTIONS, batch_size=16)
    config.train.size_classes = 1
    experiment = experiment_module(config).build(config, split_evaluation(config.evaluation)[1], None)
    evaluate = jax.jit(functools.partial(experiment.evaluate, key=jax.random.key(2**20)))
    found = evaluate(kvq_jax.load(released).variables, None)
    for kernel in ("rbf", "matern"):
        ours = np.asarray(found[f"{kernel}/target"], np.float64)
        table = result["metrics"][f"trained/{kernel}/target"]["seeds"][0]
        assert abs(ours.mean() - table) < 4 * ours.std() / FUNCTIONS**0.5
