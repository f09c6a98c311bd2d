"""Sweep, tables, figures and collect as commands, on a sweep that this file really runs at preset tiny."""

import csv
import fcntl
import json
import shlex
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import kvq_jax
from experiments import catalogue
from experiments.harness.errors import Diverged, UserError
from experiments.harness.outcome import outcome
from experiments.harness.placement import shares_of_cores
from scripts.sweeps.processes import run_in_process
from tests import processes
from tests.processes import ROOT
from tests.scripts.command import run

SWEEP = (
    "--config=configs/intention/sine.py:preset=tiny",
    "--config.evaluation.counts=(1, 5, 9)",
    "--config.train.steps=20",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    listed = run("sweep", *SWEEP, "--workdir", folder, "--dry_run")
    assert listed.count("run: configs/intention/sine.py:preset=tiny,model=") == 4 and not folder.exists()
    run("sweep", *SWEEP, "--workdir", folder)
    assert len(list(folder.rglob("result.json"))) == 4
    pixels = ("--config=configs/intention/pixels.py:preset=tiny,model=maml", "--config.train.steps=20")
    processes.told("experiments.run", *pixels, "--workdir", folder / "intention" / "pixels" / "maml")
    return folder


def test_a_second_sweep_skips_what_has_a_result(runs):
    told = run("sweep", *SWEEP, "--workdir", runs)
    assert told.count("skip, has a result: ") == 4 and "run: " not in told


def test_a_sweep_refuses_a_key_that_some_cells_lack(tmp_path):
    """Config keys of one model are no keys of the others."""
    told = run("sweep", *SWEEP, "--config.model.inner_rate=1e9", "--workdir", tmp_path / "runs", code=2)
    assert "inner_rate" in told and not (tmp_path / "runs").exists()


@pytest.mark.skipif(len(shares_of_cores()) < 2, reason="each worker has a core of its own, and this process has one")
def test_two_workers_come_to_the_results_of_one_to_the_bit(runs, tmp_path):
    told = run("sweep", *SWEEP, "--workdir", tmp_path, "--workers", 2)
    assert told.count("run: ") == told.count("done in ") == 4
    for path in tmp_path.rglob("result.json"):
        assert outcome(path.parent) == outcome(runs / path.parent.relative_to(tmp_path))


def test_a_worker_reports_what_its_process_says(tmp_path):
    config = "--config=configs/intention/sine.py:model=attention,preset=tiny"
    for option, error, said in (
        ("--config.train.steps=0", UserError, "steps"),
        ("--config.optimizer.learning_rate=1e30", Diverged, "finite"),
        ("--config.train.batch_size=many", UserError, "batch_size"),
    ):
        with pytest.raises(error, match=said):
            run_in_process([config, option, f"--workdir={tmp_path}"], tmp_path)


def test_figures_and_their_numbers(runs, tmp_path):
    for name in ("figure6", "figure7", "figure13"):
        told = run("figures", "--figure", f"intention/{name}", "--results", runs, "--out", tmp_path)
        assert Path(told.strip()) == tmp_path / "intention" / f"{name}.png"
        assert (tmp_path / "intention" / f"{name}.png").read_bytes()[1:4] == b"PNG"
    with (tmp_path / "intention" / "figure7.csv").open() as file:
        rows = list(csv.DictReader(file))
    sine = [row for row in rows if row["task"] == "sine curves"]
    assert len(sine) == 4 * 2 * 3 and {row["preset"] for row in rows} == {"tiny"}
    result = next(json.loads(path.read_text()) for path in runs.rglob("maml-tiny-*/result.json"))
    row = next(r for r in sine if (r["model"], r["phase"], r["observations"]) == ("maml", "trained", "5"))
    assert float(row["mean"]) == result["metrics"]["trained/mse@5"]["mean"]
    with (tmp_path / "intention" / "figure6.csv").open() as file:
        drawn = [row for row in csv.DictReader(file) if row["model"] == "maml" and row["phase"] == "trained"]
    assert len(drawn) == 3 * 200 and np.isfinite([float(row["prediction"]) for row in drawn]).all()


def test_tables_show_what_is_missing_and_never_mix_presets(runs, tmp_path):
    table = run("tables", "--table", "intention/figure7_sine", "--results", runs, "--out", tmp_path)
    assert (tmp_path / "intention" / "figure7_sine.md").read_text() == table
    assert "| Intention, trained |" in table and "missing" not in table and "Preset tiny" in table
    partly = run("tables", "--table", "intention/figure7_pixels", "--results", runs, "--format", "csv")
    lines = {line[0]: line for line in csv.reader(partly.splitlines())}
    assert set(lines["Intention, trained"][1:-3]) == {"missing", ""} and "missing" not in lines["MAML, trained"]
    assert lines["model"][-3:] == ["preset", "seeds", "n"] and lines["Intention, trained"][-3] == "tiny"
    quick = tmp_path / "mixed" / "one" / "result.json"
    quick.parent.mkdir(parents=True)
    content = json.loads(next(runs.rglob("maml-tiny-*/result.json")).read_text())
    del content["digest"]  # it is another result now
    content["axes"]["preset"], content["config_hash"] = "quick", "0"
    quick.write_text(json.dumps(content))
    both = "tables", "--table", "intention/figure7_sine", "--results", f"{runs},{tmp_path / 'mixed'}"
    assert run(*both) == table  # the preset that fills the most cells
    mixed = run(*both, "--preset", "quick", "--out", tmp_path)
    assert "Preset quick" in mixed and "| Intention, trained | missing |" in mixed
    assert (tmp_path / "intention" / "figure7_sine_quick.md").read_text() == mixed
    assert "papr" in run(*both, "--preset", "papr", code=2)


def test_axes_on_the_command_line_choose_cells(tmp_path):
    sine, folder = "--config=configs/intention/sine.py", ("--workdir", tmp_path / "runs", "--dry_run")
    told = run("sweep", f"{sine}:model=maml,preset=tiny", *folder).splitlines()
    assert len(told) == 1 and told[0].startswith("run: configs/intention/sine.py:model=maml,preset=tiny -> ")
    scaling = "--config=configs/intention/scaling.py"
    both = run("sweep", f"{scaling}:model=intention,size=32,preset=paper", *folder)
    sizes = run("sweep", f"{scaling}:size=32,preset=paper", *folder)
    count = both.count("run: ")
    assert 1 < count == both.count("model=intention,size=32,preset=paper,dimension=") and sizes.count("run: ") > count
    few_shot = "--config=configs/intention/few_shot_classification.py:model=attention"
    assert "no cell of figure14()" in run("sweep", few_shot, "--cells", "figure14", *folder, code=2)


def test_runs_lists_what_there_is(runs, tmp_path):
    listed = list(csv.DictReader(run("runs", "--results", runs, "--format", "csv").splitlines()))
    assert [row["name"] for row in listed] == ["intention/pixels"] + ["intention/sine"] * 4
    assert {row["overrides"] for row in listed[1:]} == {"evaluation.counts=[1, 5, 9] train.steps=20"}
    assert {(row["preset"], row["steps"], row["metric"]) for row in listed[1:]} == {("tiny", "20", "trained/mse@1")}
    assert not any("older code" in row["code"] for row in listed)
    by_metric = run(
        *("runs", "--results", runs, "--name", "sine", "--format", "csv"),
        *("--metric", "trained/mse@9", "--sort", "metric"),
    )
    means = [float(row["mean"]) for row in csv.DictReader(by_metric.splitlines())]
    assert len(means) == 4 and means == sorted(means)
    seconds = [float(row["seconds"]) for row in listed]
    by_time = csv.DictReader(run("runs", "--results", runs, "--sort", "time", "--format", "csv").splitlines())
    assert [float(row["seconds"]) for row in by_time] == sorted(seconds)
    old = json.loads(next(runs.rglob("maml-tiny-*/result.json")).read_text())
    del old["code"], old["overrides"], old["digest"]
    (tmp_path / "result.json").write_text(json.dumps(old))
    table = run("runs", "--results", tmp_path)
    assert "older code" in table and "model=maml" in table and "trained/mse@1" in table


def test_runs_says_in_one_line_what_is_wrong(runs, tmp_path):
    assert "no result below" in run("runs", "--results", tmp_path, code=2)
    assert "no result below" in run("report", "--results", tmp_path, "--out", tmp_path / "report", code=2)
    assert not (tmp_path / "report").exists()
    assert "no result with 'cosine' in its name" in run("runs", "--results", runs, "--name", "cosine", code=2)
    unknown = run("runs", "--results", runs, "--metric", "trained/mae@5", code=2)
    assert "unknown --metric 'trained/mae@5': did you mean 'trained/mse@N'?" in unknown
    assert "did you mean 'metric'" in run("runs", "--results", runs, "--sort", "metrics", code=2)
    several = run("runs", "--results", runs, "--picture", tmp_path / "slices.png", code=2)
    assert "of one experiment, here are intention/pixels, intention/sine: choose with --name" in several
    assert "did you mean 'csv'" in run("runs", "--results", runs, "--format", "cvs", code=2)


@pytest.mark.parametrize(
    "script, piece",
    [
        ("sweep", "--workers: "),
        ("tables", "--format: md, tex or csv (default: md)"),
        ("figures", "--figure: "),
        ("collect", "--preset: presets to copy (default: quick,paper)"),
        ("runs", "--metric: "),
        ("benchmark", "accuracy, evaluation, events, experiments, harness, images, np, ops, published, sets"),
        ("import_weights", "--model: one of cnp, "),
        ("prepare_data", "--weights: "),
    ],
)
def test_every_command_answers_help(script, piece):
    told = run(script, "--help")
    assert f"python -m scripts.{script}" in told.splitlines()[0] and piece in told


def test_what_does_not_exist_is_one_line(runs, tmp_path):
    assert "did you mean 'intention/figure7'" in run(
        "figures", "--figure", "intention/figure77", "--results", runs, code=2
    )
    assert "no result for intention/figure7_sine" in run(
        "tables", "--table", "intention/figure7_sine", "--results", tmp_path, code=2
    )
    assert "there are none" in run("figures", "--figure", "intention/figure6", "--results", tmp_path, code=2)
    (tmp_path / "result.json").write_text("{")
    assert "cannot read" in run("tables", "--table", "intention/figure7_sine", "--results", tmp_path, code=2)


@pytest.mark.parametrize(
    "named, message",
    [
        ("npp", "unknown benchmark 'npp': did you mean 'np'?"),
        ("np:cnp,tnp_e", "unknown model 'tnp_e': did you mean 'tnp_"),
        ("ops:cnp", "ops:cnp: the benchmark ops has no models to choose from"),
    ],
)
def test_what_no_benchmark_measures_is_one_line(named, message):
    assert message in run("benchmark", "images:cnp", named, code=2)


def test_without_a_name_they_list_what_there_is():
    assert "intention/figure7" in run("figures").splitlines()
    assert "intention/figure7_sine" in run("tables").splitlines()


@pytest.mark.parametrize("kind", ["figures", "tables"])
def test_the_index_of_experiments_names_them_all(kind):
    index = (ROOT / "configs" / "README.md").read_text()
    assert [name for name in catalogue.names(kind) if f"`{name}`" not in index] == []


def test_collect_copies_results_without_checkpoints(runs, tmp_path):
    run("collect", "--runs", runs, "--results", tmp_path, "--preset", "tiny")
    copies = sorted(path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("result.json"))
    assert copies == [("intention", "pixels")] + [("intention", "sine")] * 4
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"result.json", "examples.npz"}
    tables = [run("tables", "--table", "intention/figure7_sine", "--results", where) for where in (runs, tmp_path)]
    assert tables[0] == tables[1]


def test_a_run_goes_on_from_what_collect_kept_of_it_to_the_bit(runs, tmp_path):
    """A run that stopped at its tenth step of twenty, and the one of the sweep, which did not."""
    whole = next(path.parent for path in runs.rglob("result.json") if path.parent.name.startswith("attention-tiny"))
    begun = tmp_path / "begun" / whole.relative_to(runs)
    checkpoint = Path("checkpoints", "latest", "10")
    shutil.copytree(whole / checkpoint, begun / checkpoint)
    for name in ("config.json", "metrics.jsonl"):
        shutil.copy2(whole / name, begun / name)
    hand_over = "collect", "--unfinished", "--runs", tmp_path / "begun", "--results", tmp_path
    with (begun / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"another process is running in {begun}" in run(*hand_over, code=2)
    (copy,) = run(*hand_over).split()
    assert Path(copy) == tmp_path / "unfinished" / whole.relative_to(runs)
    files = [path for path in Path(copy).rglob("*") if path.is_file()]
    assert files and not any(str(whole).encode() in path.read_bytes() for path in files)  # it names no machine's folder
    run("sweep", *SWEEP, "--workdir", tmp_path / "unfinished", "--grid", "model=attention")
    assert outcome(Path(copy)) == outcome(whole)
    written = [
        [path.stat().st_mtime for path in sorted((each / checkpoint).rglob("*"))] for each in (whole, Path(copy))
    ]
    assert written[0] == written[1]  # it began at that step
    assert "no run with a checkpoint and without a result" in run(
        "collect", "--unfinished", "--runs", tmp_path / "unfinished", "--results", tmp_path, code=2
    )


@pytest.mark.parametrize("best", [set(), {"best/5", "best/10"}])
def test_collect_hands_over_what_the_run_needs(tmp_path, best):
    checkpoints = tmp_path / "runs" / "cell" / "checkpoints"
    evaluated = checkpoints.with_name("evaluation") / "trained-0-of-2.npz"
    evaluated.parent.mkdir(parents=True)
    evaluated.write_bytes(b"a part")
    for name in {"latest/5", "latest/20"} | best:
        (checkpoints / name).mkdir(parents=True)
    told = run("collect", "--unfinished", "--runs", tmp_path / "runs", "--results", tmp_path)
    copies = Path(told.strip()) / "checkpoints"
    assert {path.relative_to(copies).as_posix() for path in copies.glob("*/*")} == {"latest/20"} | best
    assert (copies.with_name("evaluation") / evaluated.name).read_bytes() == b"a part"


def test_collect_leaves_images_of_data_sets_out(tmp_path):
    folder = tmp_path / "runs" / "cell"
    folder.mkdir(parents=True)
    content = {"name": "paper/task", "axes": {"preset": "tiny"}, "config": {}, "config_hash": "0", "metrics": {}}
    (folder / "result.json").write_text(json.dumps(content))
    np.savez_compressed(folder / "examples.npz", image=np.zeros((2, 3), np.uint8), prediction=np.ones(2, np.float32))
    run("collect", "--runs", tmp_path / "runs", "--results", tmp_path / "kept", "--preset", "tiny")
    with np.load(tmp_path / "kept" / "paper" / "task" / "cell" / "examples.npz") as kept:
        assert list(kept) == ["prediction"]


def test_collect_keeps_the_result_of_another_config(tmp_path):
    """Two --workdir of one name; the same config may come again."""
    for which in ("one", "two"):
        folder = tmp_path / which / "cell"
        folder.mkdir(parents=True)
        content = {"name": "paper/task", "axes": {"preset": "tiny"}, "config": {}, "config_hash": which, "metrics": {}}
        (folder / "result.json").write_text(json.dumps(content))
        np.savez_compressed(folder / "examples.npz", prediction=np.ones(2, np.float32))
    kept = "--results", tmp_path / "kept", "--preset", "tiny"
    for _ in range(2):
        run("collect", "--runs", tmp_path / "one", *kept)
    assert "is of another config than" in run("collect", "--runs", tmp_path / "two", *kept, code=2)
    place = tmp_path / "kept" / "paper" / "task" / "cell" / "result.json"
    assert json.loads(place.read_text())["config_hash"] == "one"


def test_released_weights_load_and_evaluate_to_the_numbers_of_their_card(runs, tmp_path):
    told = run("collect", "--runs", runs / "intention" / "sine", "--results", tmp_path, "--preset", "tiny", "--weights")
    (maml,) = (Path(line) for line in told.splitlines() if "/weights/intention/sine/maml-tiny" in line)
    assert {path.name for path in maml.iterdir()} == {"README.md", "model.json", "variables.safetensors"}
    assert len(list((tmp_path / "weights").rglob("README.md"))) == 4
    card = (maml / "README.md").read_text()
    trained = kvq_jax.load(maml)
    assert f"parameters: {sum(leaf.size for leaf in jax.tree.leaves(trained.variables)):,}\n" in card
    command = shlex.split(next(line for line in card.splitlines() if "--weights" in line))
    assert command[:3] == ["python", "-m", "experiments.run"] and command[-1] == str(maml)
    processes.told(*command[2:], "--workdir", tmp_path / "again")
    again = json.loads((tmp_path / "again" / "result.json").read_text())["metrics"]
    numbers = {row[1].strip(): float(row[2]) for row in csv.reader(card.splitlines(), delimiter="|") if "@" in str(row)}
    assert numbers.keys() == again.keys() and again["trained/mse@5"]["seeds"] == [again["trained/mse@5"]["mean"]]
    for name, number in numbers.items():
        np.testing.assert_allclose(again[name]["mean"], number, rtol=1e-3, err_msg=name)
