"""The picture of KVQ space: every operator is in it, and it is drawn from a result."""

import numpy as np
import pytest
from rich.console import Console

from configs.kvq import space as config_file
from experiments import catalogue
from experiments.harness.errors import UserError
from experiments.harness.launch import Options, launch
from experiments.kvq.space import tables
from kvq_jax.ops import OPERATORS
from tests.kvq_jax.ops.reference import LABELS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = config_file.get_config("preset=tiny")
    return launch(config, tmp_path_factory.mktemp("run"), Options(), Console(quiet=True), catalogue.show)


def test_every_operator_predicts(run):
    arrays = run.examples
    assert [metric.split("/")[0] for metric in run.metrics] == list(OPERATORS)
    assert set(run.content["facts"]["labels"]) == LABELS | {"ls_svm"}
    for op in OPERATORS:
        prediction = arrays[f"{op}/prediction"]
        assert prediction.shape == arrays["grid"].shape and np.isfinite(prediction).all()
    assert run.metrics["intention/mse"]["mean"] < run.metrics["uniform/mse"]["mean"]
    assert 0.5 < run.metrics["ls_svm/accuracy"]["mean"] <= 1
    rows = dict(tables.run_table(run).rows)
    assert list(rows) == list(run.metrics) and all(mean.known and mean.error is None for mean, _ in rows.values())


def test_the_picture_is_drawn_from_a_result(run, tmp_path):
    assert (run.folder / "figure.png").stat().st_size > 10_000
    space = catalogue.find("figures", "kvq/space")
    assert space([run], tmp_path) == tmp_path / "space.png"
    lines = (tmp_path / "space.csv").read_text().splitlines()
    assert len(lines) == 1 + len(OPERATORS) * len(run.examples["grid"])
    with pytest.raises(UserError, match="needs a result of kvq/space"):
        space([], tmp_path)
