"""KVQ space at work: the configs that swap operators, and their table."""

import jax
import pytest

from configs import common
from configs.kvq import operators as config_file
from experiments.harness.experiment import Experiment
from experiments.harness.results import Result
from experiments.kvq.operators import findings
from experiments.kvq.operators.tables import COLUMNS, operators, smoothing
from kvq_jax.ops import OPS
from scripts.benchmarks import training
from tests.kvq_jax.ops.reference import LABELS


def result(tmp_path, experiment, op, mean, sem=0.0, data="real", start="own", losses=()):
    axes = f"experiment={experiment},op={op},data={data},preset=quick,smoothing={start}"
    config = config_file.get_config(axes).to_dict()
    metrics = {
        f"trained/{COLUMNS[experiment].metric}": {"mean": mean, "sem": sem, "n": 20 if experiment == "anomaly" else 10}
    }
    facts = {"data": data} if experiment in ("pixels", "few_shot_classification", "anomaly") else {}
    content = dict(name="kvq/operators", axes=config["axes"], config=config, metrics=metrics, facts=facts)
    return Result(tmp_path, content | dict(steps=5, best_step=4, seeds=[0], validation_losses=list(enumerate(losses))))


def test_every_operator_whose_values_are_no_labels_is_there():
    assert set(common.operators()) == set(OPS) - LABELS
    assert tuple(COLUMNS) == tuple(config_file.EXPERIMENTS)
    assert len(config_file.sweep()) == len(COLUMNS) * len(common.operators())


@pytest.mark.parametrize("experiment", config_file.EXPERIMENTS)
def test_the_operator_reaches_the_model(experiment):
    """The operator with a ridge has parameters that attention has not, and nothing else changes."""

    def shapes(op):
        config = config_file.get_config(f"experiment={experiment},op={op},preset=tiny")
        built: Experiment = training.build(config)
        return jax.tree_util.tree_leaves_with_path(jax.eval_shape(built.init, jax.random.key(0))["params"])

    attention, intention = shapes("softmax"), shapes("intention")
    new = {jax.tree_util.keystr(path) for path, _ in intention} - {jax.tree_util.keystr(path) for path, _ in attention}
    assert len(intention) == len(attention) + len(new) == len(attention) + 1 and "alpha" in new.pop()


def test_table(tmp_path):
    assert operators([]) is None
    results = [
        result(tmp_path, "sine", "softmax", 0.3),
        result(tmp_path, "sine", "intention", 0.1),
        result(tmp_path, "anomaly", "softmax", 0.5, 0.01),
        result(tmp_path, "anomaly", "intention", 0.4, 0.01),
        result(tmp_path, "anomaly", "erf", None, None),
        result(tmp_path, "pixels", "erf", 0.01, data="digits"),
        result(tmp_path, "kabsch", "softmax", 0.2, data="digits"),
    ]
    table = operators(results)
    assert [name for name, _ in table.rows] == [op for op in OPS if op not in LABELS]
    by_op = dict(table.rows)
    filled = [name for name, cells in table.rows if any(cell.text() != "missing" for cell in cells)]
    assert filled == ["softmax", "erf", "intention"]
    assert by_op["intention"][0].best and not by_op["softmax"][0].best  # an error
    assert by_op["softmax"][-1].best and by_op["softmax"][-1].mean == 50  # an accuracy, in percent
    assert by_op["erf"][1].text() == "missing" and by_op["erf"][-1].text() == "not finite"
    assert by_op["softmax"][3].mean == 0.2  # its tasks are drawn, whatever images others are asked for
    assert dict(operators(results[-2:]).rows)["erf"][1].mean == 0.01
    assert "steps: 5, the weights those of the best validation loss in anomaly;" in table.caption
    assert table.facts == {"preset": "quick", "seeds": "1", "n": "sine 10, kabsch 10, anomaly 20"}


def test_every_start_of_every_operator_is_a_cell():
    cells = config_file.smoothing()
    of_sine = {
        op: [cell["smoothing"] for cell in cells if cell == cell | {"experiment": "sine", "op": op}] for op in OPS
    }
    fixed = {op for op, starts in of_sine.items() if starts == ["some"]}
    assert fixed == {"linear", "uniform", "erf"} and not any(of_sine[op] for op in LABELS)
    assert all(of_sine[op] == list(config_file.SMOOTHING) for op in common.operators() if op not in fixed)
    for cell in cells:
        config = config_file.get_config(",".join(f"{axis}={value}" for axis, value in cell.items()))
        assert config.axes.smoothing == cell["smoothing"] and config.train.seeds == 3
    with pytest.raises(ValueError, match="unknown start of erf 'much'; known: some"):
        config_file.get_config("op=erf,smoothing=much")
    assert "smoothing" not in config_file.get_config("op=erf").axes


@pytest.mark.parametrize("experiment", config_file.EXPERIMENTS)
def test_a_start_reaches_the_model(experiment):
    """Distances and ridges count in units of the heads that there are."""
    config = config_file.get_config(f"experiment={experiment},op=laplace,smoothing=much,preset=tiny")
    heads = config.model.get("options", config.model)
    assert heads.op.length_scale == 4 * heads.head_features**0.5 and heads.scaling == "none"
    config = config_file.get_config(f"experiment={experiment},op=informer,smoothing=much,preset=tiny")
    built: Experiment = training.build(config)
    params = jax.jit(built.init)(jax.random.key(0))["params"]
    (theta,) = (leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params) if "alpha" in str(path))
    assert (abs(theta) < 1e-6).all()  # alpha / (1 - alpha) = 1


def test_the_table_of_starts_has_that_of_the_least_validation_loss(tmp_path):
    assert smoothing([result(tmp_path, "sine", "softmax", 0.3)]) is None
    results = [
        result(tmp_path, "sine", "softmax", 0.4),
        result(tmp_path, "sine", "softmax", 0.3, start="little", losses=(0.1, 3.0)),  # the last state is evaluated
        result(tmp_path, "sine", "softmax", 0.2, start="some", losses=(2.0, 2.0)),
        result(tmp_path, "sine", "softmax", 0.1, start="much", losses=(1.0, float("nan"))),
        result(tmp_path, "anomaly", "softmax", 0.5, start="some", losses=(0.1, 3.0)),  # the best one
        result(tmp_path, "anomaly", "softmax", 0.6, start="much", losses=(2.0, 2.0)),
    ]
    table = smoothing(results)
    softmax = dict(table.rows)["softmax"]
    assert softmax[0].mean == 0.2 and softmax[-1].mean == 50 and softmax[1].text() == "missing"
    assert "sine: softmax some of 3; anomaly: softmax some of 2." in table.caption
    assert dict(operators(results).rows)["softmax"][0].mean == 0.4


def test_what_the_table_of_starts_says(tmp_path):
    """Each experiment that has attention, Intention and the Informer is told, beside what they had before."""
    means = {"softmax": (0.4, 0.2), "intention": (0.3, 0.1), "informer": (0.5, 0.3)}
    results = [
        result(tmp_path, "sine", op, mean, start=start, losses=(1.0,))
        for op, both in means.items()
        for mean, start in zip(both, ("own", "some"), strict=True)
    ]
    assert list(findings.smoothing(results[:-1])) == []  # the Informer is not run
    (said,) = findings.smoothing(results)
    assert "intention 0.10, softmax 0.20 and informer 0.30; intention is number 1 of 3." in said.text
    assert said.text.endswith("softmax 0.40, intention 0.30 and informer 0.50.")
    uniform = result(tmp_path, "sine", "uniform", 0.15, start="some")
    _, said = findings.smoothing([*results, uniform])
    assert said.text.endswith(
        ": softmax and informer are no better than a plain mean (uniform), within the joint error."
    )
    uniform = result(tmp_path, "sine", "uniform", 0.9, start="some")
    _, said = findings.smoothing([*results, uniform])
    assert said.text.endswith(": all others are better than a plain mean (uniform).")
