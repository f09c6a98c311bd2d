"""Runs beside each other, on results that are made here: tables, pictures, differences, and what is moved away."""

import csv
import fcntl
import json
from pathlib import Path

import pytest

from experiments.harness.errors import UserError
from experiments.harness.results import load_results
from scripts.sweeps import slices, trash, varied


def content(number: int, model: str, rate: float, seed: int, mean: float) -> dict:
    return {
        "name": "paper/task",
        "axes": {"model": model, "preset": "tiny"},
        "overrides": {"optimizer.learning_rate": rate},
        "config": {
            "axes": {"model": model, "preset": "tiny"},
            "optimizer": {"learning_rate": rate, "name": "adam"},
            "train": {"seed": seed},
        },
        "config_hash": str(number),
        "metrics": {
            "trained/loss": {"mean": mean, "sem": 0.5, "median": mean, "n": 4, "seeds": [mean]},
            "untrained/loss": {"mean": 9.0, "sem": None, "median": 9.0, "n": 1, "seeds": [9.0]},
        },
    }


@pytest.fixture
def root(tmp_path) -> Path:
    """Four runs: two models at two learning rates, with losses 1 to 4."""
    for number, (model, rate) in enumerate((m, r) for m in ("a", "b") for r in (0.1, 0.001)):
        folder = tmp_path / "runs" / "paper" / f"run{number}"
        folder.mkdir(parents=True)
        made = content(number, model, rate, 0, number + 1.0)
        (folder / "result.json").write_text(json.dumps(made))
        (folder / "config.json").write_text(json.dumps(made["config"]))
        (folder / "lock").write_text("")
    return tmp_path / "runs"


def entries(root: Path) -> list[varied.Entry]:
    return [varied.of_result(result) for result in load_results([root])]


def test_a_table_has_a_column_for_what_differs_and_no_other(root):
    made = varied.table(entries(root))
    rows = list(csv.reader(made.csv().splitlines()))
    assert rows == [
        ["model", "optimizer.learning_rate", "trained/loss", "trained/loss sem"],
        ["a", "0.1", "1.0", "0.5"],
        ["a", "0.001", "2.0", "0.5"],
        ["b", "0.1", "3.0", "0.5"],
        ["b", "0.001", "4.0", "0.5"],
    ]
    other = varied.table(entries(root)[:1], "untrained/loss")
    assert other.columns == ["preset", "untrained/loss"] and other.rows[0][1][0].mean == 9.0


def test_a_run_that_is_missing_is_a_row_without_a_number(root):
    found = entries(root)
    lost = varied.Entry(found[3].config, found[3].chosen, None)
    made = varied.table([*found[:3], lost])
    assert made.rows[3][1][-1].text() == "missing" and made.caption == "3 of 4 runs have a result"


def test_an_override_is_compared_with_the_value_of_runs_without_it(root):
    """One run is given its seed on the command line: the others have one too."""
    made = content(9, "a", 0.1, 7, 5.0) | {"overrides": {"train.seed": 7}}
    (root / "paper" / "run0" / "result.json").write_text(json.dumps(made))
    table = varied.table(entries(root))
    assert table.columns == ["model", "optimizer.learning_rate", "train.seed", "trained/loss"]
    assert [cells[1] for _, cells in table.rows] == ["7", "0", "0", "0"]


def test_a_filter_reads_literals(root):
    first = entries(root)[1]
    assert first.has("optimizer.learning_rate", "1e-3") and first.has("model", "a") and first.has("train.seed", "0")
    assert not first.has("optimizer.learning_rate", "0.1") and not first.has("train.steps", "1")


def test_a_picture_draws_every_run_and_writes_its_numbers(root, tmp_path):
    path = slices.draw(entries(root), tmp_path / "slices.png")
    assert path.read_bytes()[1:4] == b"PNG"
    rows = list(csv.DictReader((tmp_path / "slices.csv").open()))
    assert [row["trained/loss"] for row in rows] == ["1.0", "2.0", "3.0", "4.0"]
    assert [row["optimizer.learning_rate"] for row in rows] == ["0.1", "0.001"] * 2
    with pytest.raises(UserError, match="differ in an axis"):
        slices.draw(entries(root)[:1], tmp_path / "one.png")
    with pytest.raises(UserError, match="needs results with trained/other"):
        slices.draw(entries(root), tmp_path / "none.png", "trained/other")


def test_differences_of_two_configs(root):
    made = varied.differences(root / "paper" / "run0", root / "paper" / "run3")
    assert made.rows == [("axes.model", ["a", "b"]), ("optimizer.learning_rate", ["0.1", "0.001"])]
    config = root / "paper" / "run3" / "config.json"
    config.write_text("[1]")
    with pytest.raises(UserError, match="run3 holds no run"):
        varied.differences(root / "paper" / "run0", root / "paper" / "run3")
    config.unlink()  # a collected result has its config too
    assert varied.differences(root / "paper" / "run0", root / "paper" / "run3").rows == made.rows
    with pytest.raises(UserError, match="paper holds no run"):
        varied.differences(root / "paper", root / "paper" / "run0")


def test_runs_are_moved_and_what_is_none_is_not(root):
    first, second, third, fourth = (root / "paper" / f"run{number}" for number in range(4))
    assert trash.move_away([(first, root)]) == [root / ".old-runs" / "paper" / "run0"]
    assert not first.exists() and (root / ".old-runs" / "paper" / "run0" / "result.json").exists()
    assert len(entries(root)) == 3, "tables no longer see it"
    (third / "config.json").unlink()
    with pytest.raises(UserError, match="run2 is no run folder: nothing was moved"):
        trash.move_away([(second, root), (third, root)])
    assert second.exists() and third.exists()
    with (fourth / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is running in .*run3: nothing was moved"):
            trash.move_away([(second, root), (fourth, root)])
    assert second.exists() and fourth.exists()
    second.rename(first)
    assert trash.move_away([(first, root)]) == [root / ".old-runs" / "paper" / "run0.1"], "the earlier one is kept"
