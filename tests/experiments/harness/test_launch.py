"""Runs that measure: a result like any other, of an experiment made here."""

import errno
import fcntl
import io
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict
from rich.console import Console

from experiments.harness.errors import ConfigError, UserError
from experiments.harness.evaluation import single
from experiments.harness.launch import Options, experiment_module, launch
from experiments.harness.run_directory import RunDirectory, config_hash


def measure(config):
    if config.measurement.size < 0:
        raise ConfigError(f"config.measurement.size: {config.measurement.size} is negative")
    return {"size": single(config.measurement.size)}, {"drawn": np.arange(3)}, {"what": "a size"}


@pytest.fixture
def config(monkeypatch) -> ConfigDict:
    module = types.SimpleNamespace(SECTIONS=("measurement",), measure=measure)
    monkeypatch.setitem(sys.modules, "experiments.paper.measured.experiment", module)
    sections = {"name": "paper/measured", "experiment": "paper.measured", "axes": {"preset": "tiny"}}
    return ConfigDict(sections | {"measurement": {"size": 2}})


def run(config, path, show=None, **options) -> tuple:
    console = Console(file=io.StringIO(), width=200)
    return launch(config, path, Options(**options), console, show), console.file.getvalue()


def test_a_measurement_is_a_result_like_any_other(config, tmp_path):
    shown = []
    made, _ = run(config, tmp_path / "run", lambda *given: shown.append(given[:2]), overrides={"measurement.size": 2})
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "config.json",
        "examples.npz",
        "lock",
        "origin.json",
        "result.json",
    }
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    assert content == made.content and shown == [(made, tmp_path / "run")]
    assert made.content["metrics"] == {"size": single(2)} and made.content["facts"] == {"what": "a size"}
    assert made.overrides == {"measurement.size": 2} and len(made.code) == 16
    assert (made.steps, content["seeds"], content["config_hash"]) == ("0", [], config_hash(config))
    np.testing.assert_array_equal(made.examples["drawn"], [0, 1, 2])


def test_a_finished_measurement_is_left_alone_and_restart_keeps_the_old_folder(config, tmp_path):
    run(config, tmp_path / "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    shown = []
    run(config, tmp_path / "run", lambda *given: shown.append(given))
    assert len(shown) == 1  # there was no picture: the run may have been killed before it
    (tmp_path / "run" / "figure.png").write_bytes(b"")
    shown.clear()
    again, told = run(config, tmp_path / "run", lambda *given: shown.append(given))
    assert "already finished" in told and (tmp_path / "run" / "result.json").read_bytes() == before and not shown
    run(config, tmp_path / "run", restart=True)
    assert (tmp_path / "run.old-1" / "result.json").read_bytes() == before


def test_what_cannot_be_measured_leaves_nothing(config, tmp_path):
    config.measurement.size = -1
    with pytest.raises(ConfigError, match="size: -1 is negative"):
        run(config, tmp_path / "run")
    with pytest.raises(UserError, match="--tensorboard: nothing is trained here"):
        run(config, tmp_path / "run", tensorboard=True)
    config.train = {"steps": 1}
    with pytest.raises(ConfigError, match="unknown section of the config 'train'"):
        run(config, tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_run_that_restart_put_aside_comes_back_where_the_new_one_is_refused(config, tmp_path, monkeypatch):
    """Also from the folder itself, whose name is then '.'."""
    made, _ = run(config, tmp_path / "run")

    def refuse(*_):
        assert (tmp_path / "run.old-1" / "result.json").exists()
        raise UserError("too much")

    monkeypatch.setattr(RunDirectory, "origins", refuse)
    monkeypatch.chdir(tmp_path / "run")
    for path in (tmp_path / "run", Path(".")):
        with pytest.raises(UserError, match="too much"):
            run(config, path, restart=True)
        assert [each.name for each in tmp_path.iterdir()] == ["run"]
        assert json.loads((tmp_path / "run" / "result.json").read_text()) == made.content


def test_a_file_system_without_locks_is_told(config, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UserError, match="run cannot be locked .No locks available."):
        RunDirectory(tmp_path / "run", config)


def test_a_folder_in_use_is_refused(config, tmp_path):
    directory = RunDirectory(tmp_path / "run", config)
    with pytest.raises(UserError, match="another process is running"):
        run(config, directory.path)


def test_an_experiment_that_does_not_exist(config, tmp_path):
    config.experiment = "paper.other"
    with pytest.raises(ConfigError, match="config.experiment: missing key"):
        experiment_module(ConfigDict({}))
    with pytest.raises(ConfigError, match=r"config.experiment: no module experiments.paper.other.experiment"):
        run(config, tmp_path / "run")
