"""The generalised Kabsch task: its sampler, Umeyama's and the affine fit, and Figures 10 and 11 from runs at preset tiny."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs.intention import kabsch as config_file
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.intention import kabsch
from experiments.intention.figures import FIGURES
from experiments.intention.kabsch import Kabsch, affine, umeyama
from experiments.intention.known_answer_tables import chosen, of_one_cloud
from experiments.intention.tables import TABLES

PLANE = Kabsch(
    dimension=2,
    pairs=5,
    queries=7,
    point_std=1.0,
    angle=(0.0, 2 * np.pi),
    scale=(0.5, 2.0),
    translation_std=1.5,
    noise_std=0.0,
)
SPACE = dataclasses.replace(PLANE, dimension=3)
each_dimension = pytest.mark.parametrize("task", [PLANE, SPACE], ids=["plane", "space"])


def draw(task, number):
    return jax.jit(jax.vmap(lambda key: task.sample(key, None)))(jax.random.split(jax.random.key(0), number))


def linear_parts(tasks):
    """The matrices a R [tasks, d, d] and shifts w of noiseless tasks, by numpy's least squares."""
    ones = np.ones((*tasks.context_x.shape[:2], 1))
    x = np.concatenate([np.float64(tasks.context_x), ones], -1)
    fits = np.linalg.pinv(x) @ np.float64(tasks.context_y)
    return np.swapaxes(fits[:, :-1], 1, 2), fits[:, -1]


@each_dimension
def test_the_sampler_draws_similarities_in_its_ranges(task):
    tasks = draw(task, 2000)
    d = task.dimension
    assert tasks.context_x.shape == tasks.context_y.shape == (2000, 5, d)
    assert tasks.target_x.shape == tasks.target_y.shape == (2000, 7, d)
    matrices, shifts = linear_parts(tasks)
    scales = (
        np.cbrt(np.linalg.det(matrices)) if d == 3 else np.sqrt(np.linalg.det(matrices))
    )  # a rotation's is 1, never -1
    assert np.percentile(scales, [0.5, 50, 99.5]) == pytest.approx([0.5, 1.25, 2.0], abs=0.06)
    rotations = matrices / scales[:, None, None]
    typical = np.median(np.abs(rotations @ np.swapaxes(rotations, 1, 2) - np.eye(d)), 0)
    assert typical.max() < 1e-5
    assert (
        np.abs(np.mean(rotations, 0) - np.eye(d) / 3 * (d == 3)).max() < 0.08
    )  # a whole turn: 0, and in space the axis' part
    assert np.median(np.abs(shifts)) == pytest.approx(0.6745 * 1.5, abs=0.06)
    assert np.std(tasks.context_x) == pytest.approx(1, abs=0.03)


def test_angle_and_noise_are_settings():
    def turned_and_doubled(x):
        return 2 * np.stack([-x[..., 1], x[..., 0]], -1)

    quarter = dataclasses.replace(PLANE, angle=(np.pi / 2, np.pi / 2), scale=(2.0, 2.0), translation_std=0.0)
    noisy = draw(dataclasses.replace(quarter, noise_std=0.1), 1000)
    np.testing.assert_allclose(noisy.target_y, turned_and_doubled(noisy.target_x), atol=1e-5)
    assert np.std(noisy.context_y - turned_and_doubled(noisy.context_x)) == pytest.approx(0.1, abs=0.005)


@each_dimension
def test_without_noise_both_oracles_are_exact(task):
    tasks = draw(task, 300)
    for answer in jax.vmap(task.answers)(tasks).values():
        errors = np.square(answer - tasks.target_y).mean((1, 2))
        assert np.median(errors) < 1e-10 and errors.max() < 1e-3


def test_umeyama_by_hand():
    """Two points say all of a similarity of the plane: a quarter turn, twice as large, moved by (3, 4)."""
    points, images = jnp.array([[0.0, 0], [1, 0]]), jnp.array([[3.0, 4], [3, 6]])
    np.testing.assert_allclose(umeyama(points, images, jnp.array([[0.0, 1], [1, 1]])), [[1, 4], [1, 6]], atol=1e-5)


def test_umeyama_never_mirrors_and_the_affine_fit_may():
    """Mirrored images of three points: the affine fit is exact, the best similarity has det R = 1 and is not."""
    points = jnp.array([[0.0, 0], [1, 0], [0, 1]])
    mirrored = points * jnp.array([-1.0, 1])
    np.testing.assert_allclose(affine(points, mirrored, 2 * points), 2 * mirrored, atol=1e-5)
    corners = umeyama(points, mirrored, points)
    (a, b), (c, d) = corners[1] - corners[0], corners[2] - corners[0]
    assert a * d - b * c > 0.01 and np.abs(corners - mirrored).max() > 0.1


def test_the_affine_fit_recovers_a_shear():
    points, queries = (jax.random.normal(jax.random.key(seed), (6, 3)) for seed in (0, 1))
    matrix, shift = jnp.array([[1.0, 2, 0], [0, 1, -1], [0.5, 0, 3]]), jnp.array([1.0, 2, 3])
    np.testing.assert_allclose(affine(points, points @ matrix + shift, queries), queries @ matrix + shift, atol=1e-3)


def test_the_errors_that_noise_leaves():
    """Of N pairs in d dimensions the affine fit keeps s^2 (1/N + (1 + 1/N) d / (N - d - 2)): the mean of an inverse Wishart."""
    task = dataclasses.replace(PLANE, pairs=12, noise_std=0.1)
    tasks = draw(task, 4000)
    errors = {name: np.square(answer - tasks.target_y).mean() for name, answer in jax.vmap(task.answers)(tasks).items()}
    assert errors["affine"] == pytest.approx(0.01 * (1 / 12 + 13 / 12 * 2 / 8), rel=0.06)
    assert 0 < errors["umeyama"] < 0.7 * errors["affine"]


def build(arg="preset=tiny", data_dir=None, task={}, **evaluation):
    config = config_file.get_config(arg)
    config.task.update(task)
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
    arrays = jax.jit(made.examples)(made.init(jax.random.key(0)), None, jax.random.key(1))
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
        (dict(cloud="nothing.obj"), DataError, "no point cloud .*nothing.obj"),
        (dict(cloud_points=4), ConfigError, "config.evaluation.cloud_points: 4 is not between the 5"),
        (dict(task=dict(dimension=4)), ConfigError, "dimension is 2 or 3"),
        (dict(task=dict(scale=(2.0, 1.0))), ConfigError, "scale is"),
    ],
)
def test_settings_are_checked(change, error, message):
    with pytest.raises(error, match=message):
        build(**change)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A run of the MLP, and the same once more under Intention's name."""
    folder = tmp_path_factory.mktemp("run")
    made = launch(config_file.get_config("model=mlp,preset=tiny"), folder, Options(), Console(quiet=True))
    named = made.config | {"model": {"name": "intention"}}
    return [made, Result(folder, made.content | {"config": named})]


def test_figures_and_table_of_tiny_runs(results, tmp_path):
    for figure, lines in (("figure10", 1 + 2 * 2 + 2 + 2), ("figure11", 1 + 2)):
        assert FIGURES[figure](results, tmp_path).stat().st_size > 10_000
        with (tmp_path / f"{figure}.csv").open() as file:
            assert len(list(csv.reader(file))) == lines
    rows = dict(TABLES["figure10"](results).rows)
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
    rows = dict(TABLES["figure10"]([*results, printed]).rows)
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
    rows = dict(TABLES["figure10"]([lost, other]).rows)
    assert [cell.text() for cell in rows["MLP"]] == ["not finite"] * 2 and rows["MAML"][0].text() == "missing"
    FIGURES["figure10"]([lost, other], tmp_path)
    with (tmp_path / "figure10.csv").open() as file:
        assert ["mlp, evaluation", str(lost.content["steps"]), ""] in list(csv.reader(file))


def test_without_results_there_is_nothing_to_draw(tmp_path):
    assert TABLES["figure10"]([]) is None
    for figure in ("figure10", "figure11"):
        with pytest.raises(UserError, match="intention/kabsch; there are none"):
            FIGURES[figure]([], tmp_path)
