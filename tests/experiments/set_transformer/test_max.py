"""Max regression: runs at preset tiny, with sets of their own size and of a shared one; Table 1."""

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.set_transformer import max as config_file
from experiments.harness.errors import ConfigError
from experiments.harness.findings import said
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.set_transformer.max import experiment as max_regression
from experiments.set_transformer.max import figures
from experiments.set_transformer.max.tables import TABLES, run_table
from experiments.set_transformer.operators.findings import beside_softmax
from experiments.set_transformer.operators.tables import operators
from tests.kvq_jax.nn.drawing import drawn


def build(arg, **changes):
    config = config_file.get_config(arg)
    config.update(changes)
    return max_regression.build(config, split_evaluation(config.evaluation)[1], None)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    config = config_file.get_config("model=sab_pma,preset=tiny")
    return launch(config, tmp_path_factory.mktemp("run") / "run", Options(), Console(quiet=True))


def test_sets_of_the_paper_have_sizes_of_their_own_and_those_of_the_demo_share_one():
    paper, demo = build("preset=paper"), build("preset=paper,protocol=demo")
    assert paper.sizes is None
    assert demo.sizes.classes.classes == tuple((size, 0) for size in range(1, 11))
    assert demo.sizes.classes.waste == pytest.approx(1)


def test_the_loss_is_the_mean_absolute_error():
    made = build("model=rff_max,preset=tiny")
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    batch = jax.vmap(lambda key: made.sample(key, None))(jax.random.split(jax.random.key(1), 8))
    still = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes)  # predicts 0
    assert made.loss(still, batch, None)[0] == pytest.approx(float(np.mean(batch.truth)), rel=1e-5)


def test_a_padded_set_has_the_loss_of_its_elements_alone():
    made = build("model=rff_mean,preset=tiny")
    padded = made.sample(jax.random.key(2), None)
    there = int(padded.mask.sum())
    variables, loss = drawn(made.init, jax.random.key(0)), jax.jit(made.loss)
    alone = loss(variables, padded.replace(x=padded.x[:there], mask=None), None)[0]
    assert there < len(padded.x) and loss(variables, padded, None)[0] == pytest.approx(float(alone), rel=1e-4)


def test_table_1_and_figure_of_tiny_runs(result, tmp_path):
    assert result.metrics["trained/mae"]["n"] == 20 and len(result.metrics["trained/mae"]["seeds"]) == 2
    rows = dict(TABLES["set_transformer/table1"]([result]).rows)
    assert list(rows) == ["rFF + Pooling (mean)", "rFF + Pooling (sum)", "rFF + Pooling (max)", "SAB + PMA"]
    ours, _, theirs = rows["SAB + PMA"]
    seeds = result.metrics["trained/mae"]["seeds"]
    assert ours.error == pytest.approx(np.std(seeds, ddof=1)) and theirs.text() == "0.2085 ± 0.0127"
    assert rows["rFF + Pooling (mean)"][0].mean is None and rows["rFF + Pooling (mean)"][2].text() == "2.133 ± 0.190"
    assert "2 seeds" in run_table(result).caption
    assert figures.run_figure(result, tmp_path).stat().st_size > 10_000
    assert TABLES["set_transformer/table1"]([]) is None and operators([]) is None


def test_other_operators_have_a_table_of_their_own(result):
    other = Result(result.folder, result.content | {"axes": result.axes | {"op": "intention"}})
    assert dict(TABLES["set_transformer/table1"]([other, result]).rows)["SAB + PMA"][0].best
    assert TABLES["set_transformer/table1"]([other]) is None
    rows = dict(operators([other, result]).rows)
    told, missing = said(beside_softmax, [other, result])
    assert "blocks, maximum, MAE, preset tiny, 2 seeds: softmax" in told[0].text and len(told) == 1 and missing is None
    assert told[0].text.endswith("is number 1 of 2, intention within the joint error of it.")
    metrics = {name: metric | {"mean": 2 * metric["mean"]} for name, metric in other.content["metrics"].items()}
    apart, _ = said(beside_softmax, [Result(other.folder, other.content | {"metrics": metrics}), result])
    assert apart[0].text.endswith("softmax is number 1 of 2.")
    assert said(beside_softmax, [result]) == ([], "no result of softmax and another operator on one task")
    assert rows["intention"][0].known and rows["softmax"][0].known and not rows["linear"][0].known
    assert config_file.get_config("op=intention").model.op.name == "intention"


def test_an_unknown_part_is_one_line():
    config = config_file.get_config("preset=tiny")
    config.model.pooling = "maxx"
    made = max_regression.build(config, split_evaluation(config.evaluation)[1], None)
    with pytest.raises(ValueError, match="unknown pooling 'maxx': did you mean 'max'"):
        jax.eval_shape(made.init, jax.random.key(0))
    config.task.low = 200.0
    with pytest.raises(ConfigError, match="config.task: low must be below high"):
        max_regression.build(config, split_evaluation(config.evaluation)[1], None)
