"""Policy distillation: its evaluation and forms of models, and Figures 8 and 9 from runs at preset tiny."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs.intention import policy_distillation as config_file
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.intention.policy_distillation import experiment as policy_distillation
from experiments.intention.policy_distillation.figures import FIGURES
from experiments.intention.policy_distillation.tables import TABLES
from kvq_jax.models import Points
from tests.experiments.evaluating import evaluated
from tests.kvq_jax.nn.drawing import drawn


def test_evaluation_is_a_plain_loop_over_tasks():
    config = config_file.get_config("model=attention,preset=tiny")
    own = split_evaluation(config.evaluation)[1] | dict(tasks=3, batch_size=2)
    made, key = policy_distillation.build(config, own, None), jax.random.key(5)
    variables = drawn(made.init, jax.random.key(0))
    values = evaluated(made, variables, key)
    sampled = [made.sample(task_key, None) for task_key in jax.random.split(key, 3)]
    losses = [made.loss(variables, jax.tree.map(lambda leaf: leaf[None], task), key)[0] for task in sampled]
    np.testing.assert_allclose(values["mse"], losses, rtol=1e-4)


def test_the_paper_form_predicts_both_coordinates_from_the_observations_alone():
    """Appendix 6's w is 9 x 512, of raw keys [K, V, Q], under e_P [128, 2]; no query and no order changes it."""
    made = policy_distillation.build(*sections("model=intention,preset=paper"), None)
    shapes = jax.eval_shape(made.init, jax.random.key(0))["params"]["network"]
    assert set(shapes) == {"decoder", "mixer", "value_encoder"}
    assert shapes["decoder"]["layer_0"]["kernel"].shape == (9 * 512, 128)

    config, own = sections("model=intention,preset=tiny,form=paper")
    made = policy_distillation.build(config, own, None)
    task = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), made.sample(jax.random.key(1), None))
    reversed_context = Points(task.context.x[:, ::-1], task.context.y[:, ::-1])
    moved = task._replace(context=reversed_context, target=task.target._replace(x=5 - task.target.x))
    variables, loss = jax.jit(made.init)(jax.random.key(0)), jax.jit(made.loss)
    losses = [float(loss(variables, batch, jax.random.key(2))[0]) for batch in (task, moved)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0] > 0


def test_the_form_is_an_axis_where_it_is_not_the_presets_own():
    cases = {
        "preset=quick": (False, None),
        "preset=paper": (True, None),
        "model=maml,preset=paper": (False, None),
        "preset=quick,form=paper": (True, "paper"),
        "preset=paper,form=regression": (False, "regression"),
        "preset=quick,form=regression": (False, None),
    }
    for arg, (printed, axis) in cases.items():
        config = config_file.get_config(arg)
        assert ("form" in config.model) == printed and config.axes.to_dict().get("form") == axis
    with pytest.raises(ValueError, match="form=paper .* not for model=maml"):
        config_file.get_config("model=maml,form=paper")


def sections(arg):
    config = config_file.get_config(arg)
    return config, split_evaluation(config.evaluation)[1]


def test_settings_are_checked():
    config = config_file.get_config("preset=tiny")
    config.task.place_std = 0.0
    with pytest.raises(ConfigError, match="config.task.place_std: expected float, above 0"):
        policy_distillation.build(config, split_evaluation(config.evaluation)[1], None)
    config, own = sections("preset=tiny,form=paper")
    config.model.form = "papre"
    with pytest.raises(ConfigError, match="config.model.form 'papre': did you mean 'paper'"):
        policy_distillation.build(config, own, None)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A run of the MLP, and the same once more under Intention's name."""
    folder = tmp_path_factory.mktemp("run")
    made = launch(config_file.get_config("model=mlp,preset=tiny"), folder, Options(), Console(quiet=True))
    named = made.axes | {"model": "intention"}
    return [made, Result(folder, made.content | {"axes": named})]


def test_figures_and_table_of_tiny_runs(results, tmp_path):
    for figure, lines in (("figure8", 1 + 2 * 4), ("figure9", 1 + 2 + 2)):
        assert FIGURES[f"intention/{figure}"](results, tmp_path).stat().st_size > 10_000
        with (tmp_path / f"{figure}.csv").open() as file:
            assert len(list(csv.reader(file))) == lines
    with (tmp_path / "figure9.csv").open() as file:
        intention = next(csv.DictReader(file))
    assert float(intention["median"]) == results[1].metrics["trained/mse"]["median"]
    table = TABLES["intention/figure9"](results)
    rows = {name: [cell if isinstance(cell, str) else cell.text() for cell in cells] for name, cells in table.rows}
    assert rows["MAML"] == ["missing"] * 2 and rows["the paper's Figure 9"] == ["(curve)"] * 2
    assert float(rows["trilateration (oracle)"][1]) < 1e-11 < 0.1 < float(rows["Intention"][1])


def test_maml_has_no_row_of_the_papers_form(results):
    """The paper has none here: among its models one that was run is a few-shot regressor, and none is missing."""
    at_paper = lambda result, model: Result(
        result.folder, result.content | {"axes": result.axes | {"model": model, "preset": "paper"}}
    )
    own = [at_paper(results[0], "mlp"), at_paper(results[1], "intention")]
    assert "MAML" not in " ".join(name for name, _ in TABLES["intention/figure9"](own).rows)
    table = TABLES["intention/figure9"]([*own, at_paper(results[0], "maml")])
    assert "MAML, few-shot regressor" in dict(table.rows)
    assert "no form: models in the paper's form" in table.caption


def test_a_result_keeps_its_validation_losses(results):
    for result in results:
        assert [step for step, _ in result.content["validation_losses"]] == [20, 40]


def test_without_results_there_is_nothing_to_draw(tmp_path):
    assert TABLES["intention/figure9"]([]) is None
    for figure in ("figure8", "figure9"):
        with pytest.raises(UserError, match="intention/policy_distillation; there are none"):
            FIGURES[f"intention/{figure}"]([], tmp_path)
