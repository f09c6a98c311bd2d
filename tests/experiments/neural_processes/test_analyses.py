"""The analyses of CMANP: blocks of several sizes on the same functions, contexts of curves, the cells of figures."""

import csv
import functools
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from ml_collections import ConfigDict
from rich.console import Console

from configs.common import PRESETS
from configs.neural_processes import analyses as config_file
from configs.neural_processes import complexity, gp
from experiments import catalogue
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.harness.run_directory import config_hash
from experiments.neural_processes.analyses import curves
from experiments.neural_processes.analyses import experiment as analyses
from experiments.neural_processes.analyses import tables as analyses_tables
from experiments.neural_processes.analyses.figures import FIGURES
from experiments.neural_processes.analyses.tables import run_table
from kvq_jax.models import MODELS, NeuralProcess
from kvq_jax.models.neural_processes.predictive import factorised
from scripts.sweep import cells as cells_of
from tests.kvq_jax.nn.drawing import drawn


class Blocks(NeuralProcess):
    """N(level, 1) everywhere; its log-likelihood with blocks of b is the level plus the first target minus b."""

    block_size: int = 5

    def setup(self):
        self.level = self.param("level", nn.initializers.zeros, ())

    def __call__(self, context, target_x, target_mask=None, *, key=None):
        return factorised(jnp.broadcast_to(self.level, target_x.shape), jnp.ones(target_x.shape))

    def log_likelihood(self, context, target, *, key=None):
        return self.level + target.y[..., 0, 0] - self.block_size


@pytest.fixture
def blocks_config(monkeypatch) -> ConfigDict:
    """The config of CMANP-AND at preset tiny with `Blocks` in its place."""
    config = config_file.get_config("model=cmanp_and,study=blocks,preset=tiny")
    monkeypatch.setitem(MODELS, "cmanp_and", MODELS["cmanp_and"]._replace(cls=Blocks))
    config.model = ConfigDict(dict(name="cmanp_and", dim_y=1, block_size=5))
    return config


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("model", ["cmanp", "cmanp_and"])
def test_task_and_model_are_those_of_the_table(model, preset):
    here, there = (file.get_config(f"model={model},preset={preset}") for file in (config_file, gp))
    assert here.task == there.task and here.model == there.model and here.optimizer == there.optimizer


def test_sizes_reach_the_model():
    config = config_file.get_config("latents=1,width=32,preset=quick")
    assert (config.model.num_latents, config.model.num_block_latents, config.model.features) == (1, 8, 32)
    assert config.axes.block_latents == "8", "a number, so that equal cells are one run"
    cells = list(cells_of(config_file, "preset=quick", {}))
    configs = {config_hash(cell.config) for cell in cells}
    assert len(cells) == 17 and len(configs) == 14


def test_blocks_of_all_sizes_judge_the_same_functions(blocks_config):
    blocks_config.evaluation.update(kernels=("rbf",), tasks=3, batch_size=2, block_sizes=(2, 46))
    made = analyses.build(blocks_config, split_evaluation(blocks_config.evaluation)[1], None)
    evaluate = jax.jit(functools.partial(made.evaluate, key=jax.random.key(5)))
    values = evaluate(drawn(made.init, jax.random.key(0)), None)
    for size in (2, 46):
        for what, sign in (("target", 1), ("gap_joint", -1)):
            np.testing.assert_allclose(
                values[f"rbf/{what}@{size}"], values[f"rbf/{what}"] + sign * (5 - size), rtol=1e-5
            )
    assert {name.split("/")[1] for name in values if "@" in name} == {
        "target@2",
        "gap_joint@2",
        "target@46",
        "gap_joint@46",
    }


def test_a_model_without_blocks_has_no_block_sizes():
    config = config_file.get_config("preset=tiny")
    with pytest.raises(ConfigError, match="block_size"):
        analyses.build(config, split_evaluation(config.evaluation)[1] | {"block_sizes": (1,)}, None)


def test_contexts_lie_where_they_should_on_the_functions():
    x = jnp.linspace(-2, 2, 5)
    arrays = curves.predicted(lambda context, x: jnp.stack([x[..., 0], x[..., 0]], -2), 200, x, jax.random.key(0))
    assert arrays["prediction"].shape == (2, 3, 2, 5) and arrays["context_x"].shape == (2, 3, 200)
    seen = np.asarray(arrays["context_x"])
    assert (seen[0].min(-1) < -1.9).all() and (seen[0].max(-1) > 1.9).all()
    np.testing.assert_allclose([seen[1].min(-1), seen[1].max(-1)], [[-1, -2, -2], [2, 1, 2]], atol=0.06)
    between = np.abs(seen[1, 2]).min()
    assert 1 <= between < 1.06 and 70 < (seen[1, 2] < 0).sum() < 130
    np.testing.assert_allclose(arrays["context_y"][:, 2], -seen[:, 2] * np.sin(3 * seen[:, 2]), atol=1e-5)
    np.testing.assert_allclose(arrays["truth"][:, 3], [np.sin(1) + np.sin(10 / 3), 0, -np.sin(3)], atol=1e-6)


def test_a_whole_run(blocks_config, tmp_path):
    blocks_config.evaluation.update(kernels=("rbf",), block_sizes=(46,))
    result = launch(blocks_config, tmp_path / "run", Options(), Console(file=io.StringIO()), catalogue.show)
    table = run_table(result)
    assert table.title == "CMANP-AND, block_latents 4, latents 4, study blocks, width 16"
    assert [name for name, _ in table.rows] == ["RBF", "RBF, blocks of 46"]
    own, of_blocks = (cells[0].mean for _, cells in table.rows)
    assert table.columns[3] == "gap" and table.rows[1][1][2].mean == result.metrics["trained/rbf/gap_joint@46"]["mean"]
    assert of_blocks == pytest.approx(own + 5 - 46, rel=1e-5)
    assert (tmp_path / "run" / "figure.png").read_bytes()[1:4] == b"PNG"
    for name in ("figure9", "figure10"):
        assert FIGURES[f"cmanp/{name}"]([result], tmp_path).exists()
        rows = list(csv.reader((tmp_path / f"{name}.csv").open()))
        assert rows[0][:3] == ["model", "function", "x"] and len(rows) == 1 + 3 * 200 and rows[1][0] == "CMANP-AND"


def content(cell, preset="tiny", likelihood=1.0) -> dict:
    """A result.json as a run would write it."""
    config = json.loads(config_file.get_config(f"{cell},preset={preset}").to_json())
    metrics = {}
    for kernel in ("rbf", "matern"):
        for suffix in ("", *(f"@{size}" for size in config["evaluation"]["block_sizes"])):
            values = {f"target{suffix}": likelihood, f"gap_joint{suffix}": 0.8, f"gap_marginal{suffix}": 0.5}
            values |= {"oracle_joint": 1.8, "oracle_marginal": 1.5}
            metrics |= {f"trained/{kernel}/{name}": {"mean": value, "sem": 0.01} for name, value in values.items()}
    trained = {"steps": config["train"]["steps"], "best_step": None, "seeds": [0]}
    return {"name": config["name"], "axes": config["axes"], "metrics": metrics, "config": config} | trained


def times(preset) -> dict:
    """A result.json of the times of blocks, 20 milliseconds for each size."""
    config = json.loads(complexity.get_config(f"what=blocks,preset={preset}").to_json())
    sizes = config["series"]["blocks"]["sizes"]
    metrics = {f"blocks/cmanp_and@{size}": {"mean": 0.02, "sem": 0.0} for size in sizes}
    return {
        "name": config["name"],
        "axes": config["axes"],
        "metrics": metrics,
        "config": config,
        "facts": {"absent": []},
    }


@pytest.fixture
def given(tmp_path) -> list[Result]:
    """The base cell, some sizes around it, and one of another preset."""
    cells = ["latents=base", "latents=1", "block_latents=32", "latents=1,block_latents=1", "width=32"]
    contents = [content(cell, likelihood=1 + 0.1 * index) for index, cell in enumerate(cells)]
    return [Result(tmp_path, made) for made in (*contents, content("latents=32", preset="quick"))]


def test_a_curve_varies_what_it_says(given):
    own = [result for result in given if result.preset == "tiny"]
    for fields, expected in (
        (["latents"], {1: 1.1, 4: 1}),
        (["block_latents"], {4: 1, 32: 1.2}),
        (["latents", "block_latents"], {1: 1.3, 4: 1}),
        (["width"], {16: 1, 32: 1.4}),
    ):
        drawn = analyses_tables.curve(own, *fields)
        assert {size: result.metrics["trained/rbf/target"]["mean"] for size, result in drawn.items()} == expected


def test_the_study_of_blocks_holds_both_models(given, tmp_path):
    both = [Result(tmp_path, content(f"model={model},study=blocks")) for model in ("cmanp_and", "cmanp")]
    assert list(analyses_tables.study_of_blocks([*given, *both])) == ["cmanp", "cmanp_and"]
    assert not analyses_tables.study_of_blocks(given)


def test_figures_of_sizes_draw_what_is_there(given, tmp_path):
    tiny = [result for result in given if result.preset == "tiny"]
    with_blocks = content("model=cmanp_and,study=blocks")
    with_blocks["config"]["evaluation"]["block_sizes"] = [46]
    both = [Result(tmp_path, with_blocks), Result(tmp_path, content("model=cmanp,study=blocks"))]
    timed, other = (Result(tmp_path, times(preset)) for preset in ("tiny", "quick"))
    for name, found, panels in (
        ("figure6", tiny, {"latents", "block_latents", "width"}),
        ("figure4", tiny, {"both"}),
        ("figure4", [*tiny, other], {"both"}),
        ("figure4", [*tiny, Result(tmp_path, with_blocks), timed], {"both", "time", "block size"}),
        ("figure4", [*tiny, *both, timed, other], {"both", "time", "block size", "no blocks"}),
    ):
        assert FIGURES[f"cmanp/{name}"](found, tmp_path).read_bytes()[1:4] == b"PNG"
        rows = list(csv.DictReader((tmp_path / f"{name}.csv").open()))
        assert {row["panel"] for row in rows} == panels
        assert [row["milliseconds"] for row in rows if row["panel"] == "time"] == ["20.0"] * 2 * ("time" in panels)
    assert "1.3" in {row["log_likelihood"] for row in rows if row["panel"] == "both" and row["size"] == "1"}


@pytest.mark.parametrize("name", ["figure4", "figure6", "figure9", "figure10"])
def test_figures_without_results_say_so(name, tmp_path):
    with pytest.raises(UserError, match="there are none"):
        FIGURES[f"cmanp/{name}"]([], tmp_path)
