"""Released weights give the numbers that their table has, on functions drawn anew."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import kvq_jax
from configs.neural_processes import gp
from experiments.harness import settings
from experiments.tasks.gaussian_process import GaussianProcess

RESULTS = Path(__file__).parents[3] / "results"
FUNCTIONS = 64  # of each kernel


@pytest.fixture(scope="module")
def drawn():
    """Kernel -> functions of the published protocol, each of a size of its own: of all models alike."""
    task = settings.build(GaussianProcess, gp.get_config("preset=paper").task, "config.task")
    keys = jax.random.split(jax.random.key(2**20), FUNCTIONS)
    sample = lambda kernel: jax.vmap(lambda key: dataclasses.replace(task, kernel=kernel).sample(key, None))
    return {kernel: jax.jit(sample(kernel))(keys) for kernel in ("rbf", "matern")}


@pytest.mark.parametrize(
    "released",
    sorted(path.parent for path in (RESULTS / "weights" / "neural_processes" / "gp").glob("*/model.json")),
    ids=lambda folder: folder.name,
)
def test_released_weights_have_the_numbers_of_their_run(released, drawn):
    (path,) = (RESULTS / "neural_processes" / "gp").glob(f"{released.name}-????????/result.json")
    metrics = json.loads(path.read_text())["metrics"]
    trained = kvq_jax.load(released)
    judge = jax.jit(
        lambda task: trained.predict(task.context, task.target, key=jax.random.key(0), method="log_likelihood")
    )
    for kernel, functions in drawn.items():
        ours = np.asarray(judge(functions), np.float64)
        assert abs(ours.mean() - metrics[f"trained/{kernel}/target"]["seeds"][0]) < 4 * ours.std() / FUNCTIONS**0.5
