"""The scaling experiment: the doubling search, Figure 3 from results, and a whole run at preset tiny."""

import csv
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from configs.intention import scaling as config_file
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import split_evaluation
from experiments.harness.results import Result
from experiments.intention.scaling import experiment as scaling
from experiments.intention.scaling.figures import FIGURES
from experiments.intention.scaling.findings import FINDINGS
from experiments.intention.scaling.tables import TABLES
from tests import processes
from tests.kvq_jax.nn.drawing import drawn


def build(arg, **evaluation):
    config = config_file.get_config(arg)
    _, own = split_evaluation(config.evaluation)
    return scaling.build(config, own | evaluation, None)


def test_evaluation_is_a_plain_loop_over_tasks():
    made, key = build("model=neural_process,size=4,preset=tiny", tasks=3, batch_size=2), jax.random.key(5)
    variables = drawn(made.init, jax.random.key(0))
    values = jax.jit(made.evaluate)(variables, None, key)
    assert values["mse"].shape == (3,) and float(values["least_squares_mse"].max()) < 1e-8
    sampled = [made.sample(task_key, None) for task_key in jax.random.split(key, 3)]
    losses = [made.loss(variables, jax.tree.map(lambda leaf: leaf[None], task), key)[0] for task in sampled]
    np.testing.assert_allclose(values["mse"], losses, rtol=1e-4)


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="config.evaluation.threshold: expected float, above 0"):
        build("preset=tiny", threshold=0.0)


def content(model, d, size, mean, median=None, preset="quick", **evaluation):
    """A result.json as a run would write it, with an error of our choice."""
    config = config_file.get_config(f"model={model},dimension={d},size={size},preset={preset}")
    config.evaluation.update(evaluation)
    error = {"mean": mean, "sem": 0.001, "median": mean if median is None else median, "n": 100, "seeds": [mean]}
    metrics = {"trained/mse": error, "trained/least_squares_mse": error}
    as_dict = json.loads(config.to_json())
    return {
        "name": config.name,
        "axes": as_dict["axes"],
        "metrics": metrics,
        "steps": config.train.steps,
        "seeds": [0],
        "config": as_dict,
    }


def why_not(arg, *finished, **evaluation):
    config = config_file.get_config(arg)
    config.evaluation.update(evaluation)
    return config_file.unneeded(config, finished)


def test_a_search_ends_at_the_first_size_that_reaches_the_threshold():
    reached = content("mlp", 3, 8, 0.04)
    arg = "model=mlp,dimension=3,size=16,preset=quick"
    assert why_not(arg) is None
    assert why_not(arg, content("mlp", 3, 8, 0.06)) is None
    assert why_not(arg, content("mlp", 3, 8, None, median=0.01)) is None  # a mean that was not finite
    assert why_not(arg, reached) == "size 8 has reached 0.04 <= 0.05"
    assert why_not(arg, reached, threshold=0.03) is None
    for other in (
        "model=mlp,dimension=4,size=16",
        "model=attention,dimension=3,size=16",
        "model=mlp,dimension=3,size=8",
    ):
        assert why_not(f"{other},preset=quick", reached) is None


def test_presets_end_the_search_and_the_sweep_increases():
    assert why_not("dimension=10,size=128,preset=quick") is None
    assert "ends at size 128" in why_not("size=256,preset=quick")
    assert "ends at dimension 2" in why_not("dimension=3,preset=tiny")
    assert why_not("dimension=10,size=8192,preset=paper") is None
    cells = config_file.sweep()
    assert len(cells) == 4 * 9 * 13
    sizes = [int(cell["size"]) for cell in cells if (cell["model"], cell["dimension"]) == ("mlp", "5")]
    assert sizes == [2**power for power in range(1, 14)]


def results(*contents):
    return [Result(Path("nowhere"), made) for made in contents]


SEARCHES = (
    content("intention", 2, 4, 0.01),
    content("intention", 2, 2, 0.3, median=0.04),
    content("intention", 3, 2, 0.9),
    content("intention", 3, 4, 0.04),
    content("mlp", 2, 2, 0.9),
    content("mlp", 2, 4, 0.8),
    content("mlp", 3, 2, None, median=0.9),
    content("attention", 2, 2, 0.01, preset="tiny"),
)


def test_figure3_and_its_table(tmp_path):
    table = TABLES["intention/figure3"](results(*SEARCHES))
    rows = {name: [cell if isinstance(cell, str) else cell.text() for cell in cells] for name, cells in table.rows}
    assert table.columns == ["model", "d = 2", "d = 3"]
    assert rows["Intention, by mean"] == ["4", "4"] and rows["Intention, by median"] == ["2", "4"]
    assert rows["MLP, by mean"] == ["> 4", "> 2"] and rows["Attention, by mean"] == ["missing", "missing"]
    assert FIGURES["intention/figure3"](results(*SEARCHES), tmp_path) == tmp_path / "figure3.png"
    with (tmp_path / "figure3.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 7 and {line["preset"] for line in lines} == {"quick"}
    best = [(line["model"], line["dimension"], line["size"]) for line in lines if line["smallest_by_mean"] == "True"]
    assert best == [("intention", "2", "4"), ("intention", "3", "4")]
    assert [line["median"] for line in lines if line["model"] == "intention"][:2] == ["0.04", "0.01"]


def test_longer_runs_stand_beside_the_search_and_not_in_it():
    long = content("mlp", 3, 2, 0.02)
    long |= {"steps": 15_000, "overrides": {"train.steps": 15_000}}
    runs = results(*SEARCHES, long)
    assert TABLES["intention/figure3"](runs).rows == TABLES["intention/figure3"](results(*SEARCHES)).rows
    table = TABLES["intention/figure3_steps"](runs)
    assert table.columns == ["weights from", "1500 steps", "1500 steps, median", "15000 steps", "15000 steps, median"]
    ((name, cells),) = table.rows
    assert (
        name == "MLP, d = 3, size 2" and not cells[0].known and [cell.mean for cell in cells[1:]] == [0.9, 0.02, 0.02]
    )
    assert TABLES["intention/figure3_steps"](results(*SEARCHES)) is None
    long["axes"] |= {"dimension": "2"}
    long["config"]["task"]["dimension"] = 2
    (finding,) = FINDINGS["intention/figure3_steps"](results(*SEARCHES, long))
    assert finding.holds and "MLP, d = 2, size 2: 0.9" in finding.text
    long["metrics"]["trained/mse"]["mean"] = 0.95
    (finding,) = FINDINGS["intention/figure3_steps"](results(*SEARCHES, long))
    assert not finding.holds


def test_the_order_of_the_models_is_that_of_each_dimension():
    """By the errors of size 2, of which one is reached in one dimension: all others are '> 2'."""
    best = dict(intention=0.01, attention=0.9, neural_process=0.9, mlp=0.9)
    worst = dict(intention=0.9, attention=0.9, neural_process=0.9, mlp=0.01)
    for errors, holds in ((best, True), (worst, False)):
        runs = [content(model, d, 2, mean if d == 2 else 0.9) for model, mean in errors.items() for d in (2, 3)]
        found = list(FINDINGS["intention/figure3"](results(*runs)))
        assert [finding.holds for finding in found] == [holds, holds]


def test_figure3_without_results_or_with_two_thresholds(tmp_path):
    assert TABLES["intention/figure3"]([]) is None
    with pytest.raises(UserError, match="there are none"):
        FIGURES["intention/figure3"]([], tmp_path)
    with pytest.raises(UserError, match="several thresholds"):
        FIGURES["intention/figure3"](results(SEARCHES[0], content("mlp", 2, 2, 0.1, threshold=0.2)), tmp_path)


def test_a_sweep_runs_what_is_needed_and_says_what_is_not(tmp_path):
    """A search of three sizes, at a threshold that the first one reaches."""
    file = tmp_path / "short.py"
    sweep = 'def sweep():\n    return [{"model": "mlp", "dimension": "2", "size": size} for size in ("2", "4", "8")]\n'
    file.write_text("from configs.intention.scaling import get_config, unneeded\n\n" + sweep)
    flags = (f"--config={file}:preset=tiny", "--config.evaluation.threshold=100.0", "--workdir", str(tmp_path / "runs"))
    told = processes.told("scripts.sweep", *flags)
    skipped = [line for line in told.splitlines() if line.startswith("skip")]
    assert (
        len(skipped) == 1
        and "size=4 evaluation.threshold=100.0: size 2 has reached" in skipped[0]
        and skipped[0].endswith("<= 100")
    )
    (folder,) = (path.parent for path in tmp_path.rglob("result.json"))
    assert (folder / "figure.png").read_bytes()[1:4] == b"PNG" and "least squares (oracle)" in told
