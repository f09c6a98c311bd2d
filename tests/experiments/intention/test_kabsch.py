"""The generalised Kabsch experiment: its models and examples, and Figures 10 and 11 from runs at preset tiny."""

import csv

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.intention import kabsch as config_file
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.intention.closed_form import chosen, of_one_cloud
from experiments.intention.kabsch import experiment as kabsch
from experiments.intention.kabsch.figures import FIGURES
from experiments.intention.kabsch.tables import TABLES
from tests.kvq_jax.nn.drawing import drawn


def build(arg="preset=tiny", data_dir=None, task=(), **evaluation):
    config = config_file.get_config(arg)
    config.task.update(dict(task))
    return kabsch.build(config, split_evaluation(config.evaluation)[1] | evaluation, data_dir)


@pytest.mark.parametrize("model", ["intention", "attention", "neural_process", "mlp"])
def test_the_paper_form_maps_any_number_of_points(model):
    """Intention and attention have two encoders of pairs, one of queries and a decoder; a cloud has 1500 points."""
    shapes = jax.eval_shape(build(f"model={model},preset=paper").init, jax.random.key(0))["params"]
    if model in ("intention", "attention"):
        width = {"intention": 128, "attention": 256}[model]
        inputs = {name: shapes[name]["layer_0"]["kernel"].shape for name in shapes if "coder" in name}
        read = {"intention": 128, "attention": 640}[model]
        expected = {"key_encoder": 4, "value_encoder": 4, "query_encoder": 2, "decoder": read}
        assert inputs == {name: (rows, width) for name, rows in expected.items()}
    made = build(f"model={model},preset=tiny,form=paper")
    arrays = jax.eval_shape(made.examples, jax.eval_shape(made.init, jax.random.key(0)), None, jax.random.key(1))
    assert arrays["prediction"].shape == (4, 1500, 2)


@pytest.mark.parametrize("dimension", [2, 3])
def test_examples_carry_a_cloud_through_the_map(dimension, tmp_path):
    np.save(tmp_path / "line.npy", np.arange(60.0).reshape(20, 3) ** 2)
    made = build(
        f"model=neural_process,preset=tiny,dimension={dimension}", str(tmp_path), cloud="line.npy", cloud_points=20
    )
    arrays = jax.jit(made.examples)(drawn(made.init, jax.random.key(0)), None, jax.random.key(1))
    assert arrays["cloud"].shape == (20, dimension)
    assert arrays["prediction"].shape == arrays["target"].shape == (4, 20, dimension)
    np.testing.assert_allclose(arrays["cloud"].mean(0), 0, atol=1e-5)
    assert np.mean(arrays["cloud"] ** 2) == pytest.approx(1, abs=1e-4)
    observed = np.abs(arrays["context_x"][0][:, None] - arrays["cloud"]).max(-1).argmin(1)
    assert len(set(observed.tolist())) == 5  # points of the cloud, each once
    np.testing.assert_allclose(arrays["context_y"][0], arrays["target"][0][observed], atol=0.06)  # but for the noise


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(cloud="nothing.obj"), DataError, "pass --data_dir"),
        (dict(cloud_points=4), ConfigError, "config.evaluation.cloud_points: 4 is not between the 5"),
        (dict(task=dict(dimension=4)), ConfigError, "dimension is 2 or 3"),
        (dict(task=dict(scale=(2.0, 1.0))), ConfigError, "config.task.scale: .* the lowest before the highest"),
    ],
)
def test_settings_are_checked(change, error, message):
    with pytest.raises(error, match=message):
        build(**change)


def test_a_cloud_that_is_not_there_is_named(tmp_path):
    for data_dir, cloud in ((str(tmp_path), "nothing.obj"), (None, str(tmp_path / "nothing.obj"))):
        with pytest.raises(DataError, match="no point cloud .*nothing.obj"):
            build(data_dir=data_dir, cloud=cloud)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A run of the MLP, and the same once more under Intention's name."""
    folder = tmp_path_factory.mktemp("run")
    made = launch(config_file.get_config("model=mlp,preset=tiny"), folder, Options(), Console(quiet=True))
    named = made.axes | {"model": "intention"}
    return [made, Result(folder, made.content | {"axes": named})]


def test_figures_and_table_of_tiny_runs(results, tmp_path):
    for figure, lines in (("figure10", 1 + 2 * 2 + 2 + 2), ("figure11", 1 + 2)):
        assert FIGURES[f"intention/{figure}"](results, tmp_path).stat().st_size > 10_000
        with (tmp_path / f"{figure}.csv").open() as file:
            assert len(list(csv.reader(file))) == lines
    rows = dict(TABLES["intention/figure10"](results).rows)
    assert rows["MAML"][0].mean is None
    assert rows["Umeyama (similarity, oracle)"][1].mean < rows["affine least squares (oracle)"][1].mean


def test_a_real_cloud_empties_no_rows_but_those_of_figure_11(results):
    drawn, other = results
    config = drawn.config | {"evaluation": drawn.config["evaluation"] | {"cloud": "bunny.obj"}}
    real = Result(drawn.folder, drawn.content | {"config": config})
    for given in ([drawn, other, real], [real, other, drawn]):
        assert chosen(given, "kabsch") == {"intention": other, "mlp": real}
        assert of_one_cloud(given, "kabsch") == {"mlp": real}


def test_a_model_in_another_form_has_a_row_of_its_own(results):
    drawn, other = results
    content = drawn.content | {"axes": drawn.content["axes"] | {"form": "paper"}, "config": drawn.config | {"steps": 1}}
    printed = Result(drawn.folder, content)
    rows = dict(TABLES["intention/figure10"]([*results, printed]).rows)
    assert (
        all(rows[name][0].mean is not None for name in ("MLP", "MLP, the paper's form"))
        and rows["MAML"][0].mean is None
    )
    assert chosen([*results, printed], "kabsch") == {"intention": other, "mlp": drawn}


def test_an_error_that_is_not_finite_is_said_to_be(results, tmp_path):
    drawn, other = results
    summary = dict(mean=None, sem=None, median=None, n=20)
    metrics = drawn.metrics | {"trained/mse": summary, "trained/affine_mse": summary}
    lost = Result(drawn.folder, drawn.content | {"metrics": metrics})
    rows = dict(TABLES["intention/figure10"]([lost, other]).rows)
    assert [cell.text() for cell in rows["MLP"]] == ["not finite"] * 2 and rows["MAML"][0].text() == "missing"
    FIGURES["intention/figure10"]([lost, other], tmp_path)
    with (tmp_path / "figure10.csv").open() as file:
        assert ["mlp, evaluation", str(lost.content["steps"]), ""] in list(csv.reader(file))


def test_without_results_there_is_nothing_to_draw(tmp_path):
    assert TABLES["intention/figure10"]([]) is None
    for figure in ("figure10", "figure11"):
        with pytest.raises(UserError, match="intention/kabsch; there are none"):
            FIGURES[f"intention/{figure}"]([], tmp_path)
