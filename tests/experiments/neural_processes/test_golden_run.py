"""A real training stays what it was: the first 300 steps of CNP on functions of Gaussian processes, in `quick`."""

import json

import numpy as np

from configs.neural_processes import gp
from scripts.benchmarks import training
from tests.processes import ROOT

STEPS, CHUNK, MEAN_OF = 300, 100, 20


def test_cnp_learns_as_it_did():
    """Rounding, which depends on how programs are compiled, grows to some thousandths of the loss."""
    stored = json.loads((ROOT / "tests" / "golden" / "cnp_gp_quick.json").read_text())["loss"]
    config = gp.get_config("model=cnp,preset=quick")
    run = training.trainer(training.build(config), config, seeds=1, chunk_steps=CHUNK).run
    loss = np.concatenate([np.asarray(run()["loss"])[:, 0] for _ in range(STEPS // CHUNK)])
    found = loss.reshape(-1, MEAN_OF).mean(1)
    np.testing.assert_allclose(found[:3], stored[:3], atol=1e-3)
    np.testing.assert_allclose(found, stored, atol=0.015)
    assert found[-3:].mean() < 0.6 * found[0], "it learns"
