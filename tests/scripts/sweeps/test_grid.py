"""A grid as a user runs it; then its runs listed, drawn, compared and moved away."""

import csv
import json
import types
from pathlib import Path

import pytest
from absl.testing import flagsaver
from ml_collections import ConfigDict

from configs.intention import sine
from experiments.harness import command_line
from experiments.harness.errors import Diverged, UserError
from scripts import sweep
from scripts.sweeps import failures, study
from scripts.sweeps.cells import cells
from scripts.sweeps.processes import Ended
from tests.scripts.command import run

GRID = (
    "--config=configs/intention/scaling.py:model=mlp,dimension=2,size=4,preset=tiny",
    *("--grid", "optimizer.learning_rate=1e-3,1e-2", "--grid", "train.seed=0,1"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("grid") / "runs"
    told = run("sweep", *GRID, "--workdir", folder)
    assert told.count("run: ") == 4 and "4 of 4 runs have a result" in told
    return folder


def result(runs: Path, rate: float, seed: int) -> tuple[Path, dict]:
    (path,) = runs.rglob(f"2-mlp-tiny-4-learning_rate={rate}-seed={seed}-*/result.json")
    return path.parent, json.loads(path.read_text())


def test_every_cell_is_a_run_with_its_own_overrides(runs):
    means = set()
    for rate in (0.001, 0.01):
        for seed in (0, 1):
            _, found = result(runs, rate, seed)
            assert found["overrides"] == {"optimizer.learning_rate": rate, "train.seed": seed}
            assert found["config"]["optimizer"]["learning_rate"] == rate and found["seeds"] == [seed]
            means.add(found["metrics"]["trained/mse"]["mean"])
    assert len(means) == 4


def test_the_same_command_runs_nothing_twice_and_shows_the_table_again(runs):
    told = run("sweep", *GRID, "--workdir", runs)
    assert told.count("skip, has a result: ") == 4 and "run: " not in told and "4 of 4 runs have a result" in told


def test_the_runs_of_a_grid_beside_each_other(runs, tmp_path):
    picture = tmp_path / "slices.png"
    listed = run("runs", "--results", runs, "--varied", "--picture", picture, "--format", "csv")
    rows = list(csv.DictReader(listed.partition("figure ")[0].splitlines()))
    assert {(row["optimizer.learning_rate"], row["train.seed"]) for row in rows} == {
        (rate, seed) for rate in ("0.001", "0.01") for seed in "01"
    }
    for row in rows:
        _, found = result(runs, float(row["optimizer.learning_rate"]), int(row["train.seed"]))
        assert float(row["trained/mse"]) == found["metrics"]["trained/mse"]["mean"]
    assert picture.read_bytes()[1:4] == b"PNG"
    one = run("runs", "--results", runs, "--where", "train.seed=1,optimizer.learning_rate=1e-2", "--format", "csv")
    (row,) = csv.DictReader(one.splitlines())
    assert row["overrides"] == "optimizer.learning_rate=0.01 train.seed=1"
    pair = ",".join(str(result(runs, 0.01, seed)[0]) for seed in (0, 1))
    assert run("runs", "--diff", pair, "--format", "csv").splitlines()[1:] == ["train.seed,0,1"]


def test_runs_are_moved_away_when_it_is_clear_which(runs, tmp_path):
    assert "--delete needs --name or --where" in run("runs", "--results", runs, "--delete", code=2)
    assert "--where model=: expected KEY=VALUE" in run(
        "runs", "--results", runs, "--where", "model=", "--delete", code=2
    )
    varied = run("runs", "--results", runs, "--name", "scaling", "--varied", "--delete", code=2)
    assert "--delete goes without --varied" in varied
    assert "--diff compares two runs: it goes without --name" in run("runs", "--diff", "a,b", "--name", "a", code=2)
    folder, _ = result(runs, 0.001, 0)
    told = run("runs", "--results", runs, "--where", "train.seed=0,optimizer.learning_rate=0.001", "--delete")
    assert not folder.exists() and (runs / ".old-runs" / folder.relative_to(runs)).is_dir() and "moved to" in told


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--random=3"], "--random needs --space"),
        (["--space=x.py"], "--space needs --random or --study"),
        (["--study=s"], "--study needs --space"),
        (["--study=s", "--space=x", "--storage=x", "--trials=1", "--metric=m", "--grid=a.b=1"], "goes with none"),
        (["--trials=5"], "--trials needs --study"),
        (["--noprune"], "--noprune needs --study"),
        (["--metric=m"], "--metric needs --study, --grid or --random"),
        (["--space=no.py", "--random=2"], "no file no.py"),
        (["--cluster=no.py"], "no file no.py"),
        (["--grid=train.stepz=1"], "unknown key of config.train 'stepz': did you mean 'steps'"),
    ],
)
def test_flags_that_do_not_go_together_are_one_line_and_nothing_is_written(flags, message, tmp_path, capsys):
    """In this process: what is wrong with flags is told before a run needs one of its own."""
    config = "--config=configs/intention/sine.py:preset=tiny"
    with flagsaver.flagsaver():
        assert sweep.main(["sweep", config, *flags, f"--workdir={tmp_path / 'x'}"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and not (tmp_path / "x" / "intention").exists()


@pytest.mark.parametrize(
    "axes, key, message",
    [
        ("preset=tiny,model=maml", "optimizer.lr", "unknown key of config.optimizer 'lr'"),
        ("preset=tiny", "optimizer.learning_rate", "a trial is one cell, not 4: give the axes that tell them apart"),
    ],
)
def test_a_space_that_does_not_fit_is_told_before_a_study_is_made(axes, key, message, tmp_path, capsys):
    pytest.importorskip("optuna")
    file = tmp_path / "space.py"
    file.write_text(f"suggest = lambda trial: {{{key!r}: trial.suggest_float('rate', 0.1, 1)}}")
    options = ("--study=s", f"--space={file}", f"--storage={tmp_path / 's.log'}", "--trials=1", "--metric=m")
    with flagsaver.flagsaver():
        assert sweep.main(["sweep", f"--config=configs/intention/sine.py:{axes}", *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line and list(tmp_path.iterdir()) == [file]


def test_the_flags_of_a_study_are_what_it_looks_for(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    searches = []

    def kept(search, *rest):
        searches.append(search)
        return types.SimpleNamespace(terminal=lambda: "")

    monkeypatch.setattr(study, "optimise", kept)
    file = tmp_path / "space.py"
    file.write_text("suggest = lambda trial: {'optimizer.learning_rate': trial.suggest_float('rate', 0.1, 1)}")
    options = (f"--space={file}", f"--storage={tmp_path / 's.log'}", "--trials=5", "--metric=m", "--study=s")
    config = "--config=configs/intention/sine.py:preset=tiny,model=maml"
    with flagsaver.flagsaver():
        assert sweep.main(["sweep", config, *options, "--maximise", "--noprune", "--seed=3"]) == 0
    assert searches == [study.Search("s", trials=5, metric="m", maximise=True, prune=False, seed=3, workers=1)]


def test_a_damaged_result_is_reported_and_the_other_cells_run(tmp_path, monkeypatch, capsys):
    begun = []

    def launched(config, path, *rest):
        begun.append(config.train.seed)
        return types.SimpleNamespace(content={})  # an older result, without its overrides

    def swept(*options) -> int:
        grid = ("--config=configs/intention/sine.py:preset=tiny,model=maml", "--grid=train.seed=0,1,2")
        with flagsaver.flagsaver():
            return sweep.main(["sweep", *grid, f"--workdir={tmp_path}", *options])

    monkeypatch.setattr(sweep.launch, "launch", launched)
    assert swept("--dry_run") == 0
    folders = [Path(line.rpartition(" -> ")[2]) for line in capsys.readouterr().out.splitlines() if " -> " in line]
    folders[1].mkdir(parents=True)
    (folders[1] / "result.json").write_text("{")
    assert swept() == 2 and begun == [0, 2]
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("error: preset=tiny,model=maml train.seed=1: cannot read ")
    assert told.out.count("missing") == 3, "the table of the grid is shown"


def test_a_failed_cell_is_reported_and_retried_only_when_asked(tmp_path, monkeypatch, capsys):
    """Of three cells one diverges, one breaks and one is refused: the refused one has not begun, and is tried again."""
    begun, now = [], {0: Diverged("the loss is not finite"), 1: ValueError("broken"), 2: UserError("--data_dir: no")}

    def launched(config, path, *rest):
        begun.append(config.train.seed)
        if now:
            raise now[config.train.seed]
        return types.SimpleNamespace(content={"overrides": {"train.seed": config.train.seed}})

    monkeypatch.setattr(sweep.launch, "launch", launched)

    def swept(*options) -> tuple[int, list[str], str]:
        begun.clear()
        grid = ("--config=configs/intention/sine.py:preset=tiny,model=maml", "--grid=train.seed=0,1,2")
        with flagsaver.flagsaver():
            code = sweep.main(["sweep", *grid, f"--workdir={tmp_path}", *options])
        return code, list(begun), "".join(capsys.readouterr())

    assert swept()[:2] == (2, [0, 1, 2])
    code, tried, told = swept()
    assert (code, tried) == (2, [2]), "the exit code is that of the last cell which failed"
    assert "train.seed=0: the loss is not finite (--retry_failed runs it again)" in told
    assert "train.seed=1: ValueError: broken" in told
    now[2] = Ended("SIGTERM")
    assert swept("--dry_run")[:2] == (1, []) and swept()[:2] == (2, [2]) and swept()[1] == [2], "one that was stopped"
    now.clear()
    assert swept()[:2] == (1, [2]) and swept("--retry_failed")[:2] == (0, [0, 1, 2]) and swept()[:2] == (0, [0, 1, 2])
    assert not list((tmp_path / ".failed").rglob("*.json"))
    (tmp_path / ".failed" / "x.json").write_text("{")
    assert failures.remembered(tmp_path, tmp_path / "x") == failures.Failure(f"{tmp_path}/.failed/x.json is damaged", 1)


def test_a_section_is_an_override_as_any_other(tmp_path, monkeypatch, capsys):
    """Stored in a result, told in one line, and a flag of another process."""
    given, section = [], "{'name': 'informer'}"
    launched = lambda config, path, options, *rest: given.append((config, options)) or types.SimpleNamespace(content={})
    monkeypatch.setattr(sweep.launch, "launch", launched)
    flags = ("--config=configs/intention/sine.py:preset=tiny,model=intention", f"--grid=model.op={section}")
    with flagsaver.flagsaver():
        assert sweep.main(["sweep", *flags, f"--workdir={tmp_path}"]) == 0
    told = capsys.readouterr().out
    assert f"sine.py:preset=tiny,model=intention model.op={section} -> {tmp_path}" in told
    ((config, options),) = given
    assert config.model.op.name == "informer" and json.dumps(options.overrides) == '{"model.op": {"name": "informer"}}'
    (cell,) = cells(sine, "model=intention,preset=tiny", {}, points=[{"model.op": {"name": "informer"}}])
    assert f"--config.model.op={section}" in cell.arguments("sine.py", tmp_path, None)


def test_a_section_of_the_command_line_is_an_override_as_any_other(monkeypatch):
    values = {"model.op": ConfigDict({"name": "informer", "more": {"alpha": 0.5}}), "train.steps": 4}
    monkeypatch.setattr(command_line.config_flags, "get_override_values", lambda flag: values)
    with flagsaver.flagsaver():
        assert command_line.overrides() == {"model.op": {"name": "informer", "more": {"alpha": 0.5}}, "train.steps": 4}
