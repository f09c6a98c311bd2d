"""What is measured of untrained operators: forms agree, the closed form holds, figures are functions of results."""

import csv

import jax
import numpy as np
import pytest
from rich.console import Console

from configs.intention import untrained as config_file
from experiments import catalogue
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch
from experiments.harness.results import Result
from experiments.intention.untrained import experiment, tables
from kvq_jax.ops import intention


@pytest.fixture(scope="module", params=["4", "5", "15"])
def run(request, tmp_path_factory):
    config = config_file.get_config(f"figure={request.param},preset=tiny")
    return launch(config, tmp_path_factory.mktemp("run"), Options(), Console(quiet=True), catalogue.show)


def test_a_run_fills_its_figure_and_its_table(run, tmp_path):
    number = run.axes["figure"]
    assert (run.folder / "figure.png").stat().st_size > 10_000 and run.content["steps"] == 0
    path = catalogue.find("figures", f"intention/figure{number}")([run], tmp_path)
    assert path == tmp_path / f"figure{number}.png"
    for name in (tmp_path / f"figure{number}.csv", run.folder / "figure.csv"):
        with name.open() as file:
            head, *rows = csv.reader(file)
        assert {len(row) for row in rows} == {len(head)}
    cells = [cell for _, cells in tables.run_table(run).rows for cell in cells]
    assert cells and all(cell.known for cell in cells)
    for other in {"4", "5", "15"} - {number}:
        with pytest.raises(UserError, match=f"Figure {other} needs a result of intention/untrained"):
            catalogue.find("figures", f"intention/figure{other}")([run], tmp_path)


def test_a_figure_takes_the_most_serious_preset(run, tmp_path):
    number, device = run.axes["figure"], "of the paper"
    axes = run.axes | {"preset": "paper"}
    paper = Result(run.folder, run.content | {"axes": axes, "device": device})
    draw = catalogue.find("figures", f"intention/figure{number}")
    same = draw([run, paper], tmp_path / "both").read_bytes() == draw([paper], tmp_path / "paper").read_bytes()
    assert same and (number != "5" or draw([run], tmp_path).read_bytes() != draw([paper], tmp_path).read_bytes())


def measured(figure, **changes):
    config = config_file.get_config(f"figure={figure},preset=tiny")
    config.measure.update(changes)
    return experiment.measure(config)


def test_intention_alone_is_exact_far_from_its_context():
    metrics, examples, _ = measured(4, draws=8)
    for setting in ("interpolation", "extrapolation"):
        assert examples[f"{setting}/key"].shape == (100, 2) and examples[f"{setting}/target"].shape == (400, 1)
        assert metrics[f"{setting}/intention/r"]["mean"] == pytest.approx(1, abs=1e-5)
        assert metrics[f"{setting}/softmax/r"]["mean"] < 0.95
    assert np.abs(examples["interpolation/query"]).max() <= 1 < np.abs(examples["extrapolation/query"]).max() <= 25


@pytest.mark.parametrize("n, d", [(6, 3), (3, 6)])
def test_the_papers_form_of_intention_is_intention(n, d):
    arguments = jax.random.normal(jax.random.key(0), (3, n, d))
    np.testing.assert_allclose(
        experiment.inverse_intention(*arguments, alpha=0.1), intention(*arguments, alpha=0.1), rtol=1e-3, atol=1e-4
    )


def test_slowdowns_are_those_of_every_size():
    metrics, examples, _ = measured(5)
    sizes, repeats = len(examples["sizes"]), 2
    for form in ("inverse", "intention"):
        assert examples[f"{form}/slowdown"].shape == (sizes, sizes, repeats)
        assert metrics[f"{form}/slowdown"]["n"] == sizes**2 * repeats


def test_the_variance_of_the_map_is_that_of_the_closed_form():
    metrics, examples, _ = measured(15, points=(4,), most=32, dimensions=4, draws=400)
    assert examples["dimensions"].tolist() == [1, 3, 10, 32] and examples["sigmoid/variance"].shape == (1, 4)
    np.testing.assert_allclose(examples["none/closed_form"][0, [0, 2, 3]], [1 / 8, 1 / 5, 1 / 27])
    np.testing.assert_allclose(examples["none/variance"][0, [2, 3]], [1 / 5, 1 / 27], rtol=0.15)
    assert metrics["sqrt/relative_error"]["n"] == 3  # of d = 3 the variance is infinite


def test_settings_are_checked():
    with pytest.raises(ConfigError, match="config.measure.ops 'intension': did you mean 'intention'"):
        measured(4, ops=("intension",))
    with pytest.raises(ConfigError, match="unknown key of config.measure 'repeat'"):
        measured(5, repeat=3)
