"""Any model on any task, as configs/kvq/anything.py pairs them."""

import pytest

from configs.kvq import anything
from experiments.harness.launch import split_evaluation
from experiments.regression.experiment import build
from experiments.tasks import TASKS
from kvq_jax.models import MODELS
from kvq_jax.ops import OPERATORS

PAIRS = [(cell["model"], cell["task"]) for cell in anything.sweep()]
# Every model on one task, and a model of each kind on every task.
BUILT = [
    (model, task) for model, task in PAIRS if task == "kabsch" or model in ("intention", "mlp", "anp", "cmanp_and")
]


def config_of(axes: str):
    return anything.get_config(f"{axes},preset=tiny")


def test_every_task_has_a_section():
    assert set(anything.TASKS) == set(TASKS)
    assert {model for model, _ in PAIRS} == set(MODELS) and {task for _, task in PAIRS} == set(TASKS)


@pytest.mark.parametrize("model, task", BUILT)
def test_pairs_of_the_sweep_fit(model, task):
    config = config_of(f"model={model},task={task}")
    build(config, split_evaluation(config.evaluation)[1], None)  # checks all shapes, and computes nothing


@pytest.mark.parametrize(
    "axes, message",
    [
        ("model=mlp,task=gp", "model=mlp does not fit task=gp: .* the same number of context points"),
        ("model=maml,op=linear", "op=linear is for models with a field `op`, which model=maml does not have"),
        ("model=intension", "did you mean 'intention'"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(axes, message):
    with pytest.raises(ValueError, match=message) as error:
        config_of(axes)
    assert "\n" not in str(error.value)


def test_another_operator_takes_the_place_of_the_models_own():
    assert config_of("model=attention,op=informer").model.op.to_dict() == dict(
        name="informer", alpha=0.5, alpha_kind="sigmoid"
    )
    assert config_of("model=tnp_d,op=linear").model.op == "linear"
    assert config_of("model=tnp_d").model.op == "softmax"


def test_rows_that_are_added_have_configs(monkeypatch):
    monkeypatch.setitem(MODELS, "another", MODELS["tnp_d"])
    monkeypatch.setitem(OPERATORS, "another_op", OPERATORS["informer"])
    config = config_of("model=another,task=sine,op=another_op")
    assert config.model.features == 16 and config.model.op.name == "another_op"
    assert {"model": "another", "task": "sine"} in anything.sweep()
