"""Studies of fake runs: what is suggested, recorded, pruned and repeated, and that a killed study ends as any other."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from experiments.harness.errors import Diverged, UserError
from scripts.sweeps import study, trials
from scripts.sweeps.cells import Cell
from scripts.sweeps.processes import Ended

optuna = pytest.importorskip("optuna")
METRIC = "trained/loss"
DEAD = "elsewhere 1 1"


class Killed(BaseException):
    """Ends the process that runs a study, as SIGKILL would."""


def suggest(trial) -> dict:
    x = trial.suggest_float("x", -1, 1)
    return {"model.x": x, "model.y": trial.suggest_float("y", 0, 1)}


def cell_of(point) -> tuple[Cell, Path]:
    text = " ".join(f"{value:.17g}" for value in point.values())
    return Cell("preset=tiny", point, ConfigDict()), Path(text)


def loss(cell: Cell) -> float:
    return (cell.overrides["model.x"] - 0.3) ** 2 + cell.overrides["model.y"]


def run(cell: Cell, path: Path, watch: Callable) -> dict:
    watch()
    return {"metrics": {METRIC: {"mean": loss(cell), "sem": 0.1}}}


def search(trials: int = 12, **changes) -> study.Search:
    given = dict(name="s", metric=METRIC, maximise=False, prune=True, seed=0, workers=1)
    return study.Search(trials=trials, **(given | changes))


def optimise(searched: study.Search, storage=None, runs=run, **options):
    storage = storage or optuna.storages.InMemoryStorage()
    return study.optimise(searched, storage, suggest, cell_of, runs, lambda line: None, **options)


def trials_of(storage) -> list:
    return optuna.load_study(study_name="s", storage=storage).get_trials(deepcopy=False)


def test_a_study_is_the_same_each_time_and_learns():
    storage = optuna.storages.InMemoryStorage()
    first, second = optimise(search(30), storage), optimise(search(30))
    assert first.csv() == second.csv() != optimise(search(30, seed=1)).csv()
    values = [trial.value for trial in trials_of(storage)]
    assert len(values) == 30 and min(values[10:]) < min(values[:10]), "ten at random, then what they say"
    assert first.columns == ["trial", "x", "y", METRIC, "state"] and f"{min(values):.6g}" in first.caption
    assert optimise(search(30), storage, runs=None).csv() == first.csv(), "nothing is left to run"


@pytest.mark.parametrize("kill_at", [[0], [5], [3, 4, 11]])
def test_a_killed_study_ends_as_one_that_was_not(kill_at):
    """In trial 11, too, where the sampler has learnt. The killed trial's parameters are run again, not others."""
    storage, left = optuna.storages.InMemoryStorage(), list(kill_at)
    seen = []

    def mortal(cell, path, watch):
        seen.append(path)
        if left and len(set(seen)) > left[0]:
            left.pop(0)
            raise Killed
        return run(cell, path, watch)

    owners = iter(range(9))
    for _ in kill_at:
        with pytest.raises(Killed):
            optimise(search(), storage, mortal, owner=f"{trials.this_process()}{next(owners)}")
    resumed = optimise(search(), storage, mortal)
    assert resumed.csv() == optimise(search()).csv() and resumed.caption == optimise(search()).caption
    assert len(seen) == 12 + len(kill_at) and len(set(seen)) == 12
    states = [trial.state.name for trial in trials_of(storage)]
    assert states.count("FAIL") == len(kill_at) and states.count("COMPLETE") == 12


def test_a_study_that_is_stopped_ends_its_runs_and_goes_on_later():
    """What Ctrl-C in a process of its own does to a run: Ended. Its trial is repeated, however often."""
    storage, calls = optuna.storages.InMemoryStorage(), []

    def interrupted(cell, path, watch):
        calls.append(path)
        raise Ended("the process ended with -2")

    for _ in range(5):
        assert len(optimise(search(3), storage, interrupted).rows) == 0
    assert len(set(calls)) == 1 and len(calls) == 5
    assert optimise(search(3), storage).csv() == optimise(search(3)).csv()


def test_ctrl_c_ends_the_runs_of_a_study():
    """The study runs beside the main thread, which alone hears signals, and tells it through what runs call."""
    heard = []

    def endless(cell, path, watch):
        time.sleep(0.2)  # until the main thread waits
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            try:
                watch()
            except Ended as error:
                heard.append(str(error))
                raise

    storage, before = optuna.storages.InMemoryStorage(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            optimise(search(3), storage, endless)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["the study was stopped"]
    assert optimise(search(3), storage).csv() == optimise(search(3)).csv()


def test_a_failed_trial_is_recorded_and_the_study_goes_on():
    storage = optuna.storages.InMemoryStorage()
    failing = {1: UserError("config.model.x: no"), 2: Diverged("not finite at step 3"), 4: None}
    numbers = iter(range(9))

    def runs(cell, path, watch):
        number = next(numbers)
        if number in failing:
            if failing[number] is None:
                return {"metrics": {METRIC: {"mean": None, "sem": None}}}
            raise failing[number]
        return run(cell, path, watch)

    made = optimise(search(6), storage, runs)
    assert [cells[-1] for _, cells in made.rows] == ["complete", "fail", "fail", "complete", "fail", "complete"]
    assert "3 of 6 trials are complete" in made.caption
    assert made.caption.endswith(f"; 3 failed, the last: {METRIC} is not finite")
    told = [trial.user_attrs["error"] for trial in trials_of(storage) if "error" in trial.user_attrs]
    assert told == ["config.model.x: no", "not finite at step 3", f"{METRIC} is not finite"]


@pytest.mark.parametrize("error", [UserError("config.model.x: no"), Diverged("not finite at step 3")])
def test_a_study_without_a_number_is_an_error_now_and_when_it_is_asked_again(error):
    """With the exit code of its last trial, as a sweep has that of its last cell."""

    def runs(cell, path, watch):
        raise error

    storage = optuna.storages.InMemoryStorage()
    for run_with in (runs, None):
        with pytest.raises(type(error), match=f"^--study s: all 3 trials failed; the last: {error}$"):
            optimise(search(3), storage, run_with)
    assert len(trials_of(storage)) == 3
    assert len(optimise(search(4), storage).rows) == 4, "more trials may do better"


def test_processes_that_share_a_study_draw_different_points_and_begin_no_trial_too_many():
    """One begins while a trial of the other goes on, and ends all others but that."""
    storage, seen = optuna.storages.InMemoryStorage(), []

    def runs(cell, path, watch):
        seen.append(path)
        if len(seen) == 1:
            beside = optimise(search(), storage, runs)
            assert len(beside.rows) == 11 and beside.caption.endswith("; 1 go on in other processes")
        return run(cell, path, watch)

    assert len(optimise(search(), storage, runs).rows) == 12
    assert len(set(seen)) == len(seen) == len(trials_of(storage)) == 12
    assert set(seen) >= {path for path in map(Path, first_points())}, "at random they are those of one process"


def first_points() -> list[str]:
    """Of the trials of a study in one process, before the sampler has learnt."""
    storage = optuna.storages.InMemoryStorage()
    optimise(search(5), storage)
    return [str(cell_of(suggest(optuna.trial.FixedTrial(trial.params)))[1]) for trial in trials_of(storage)]


def test_a_trial_that_was_begun_too_late_is_none(monkeypatch):
    """Two processes see that one trial is missing, and both begin one: the second leaves."""
    storage, begun_here = optuna.storages.InMemoryStorage(), trials.begun_here

    def seen_by_both(study, *before):
        number = begun_here(study, *before)
        if number == 1 and not before:
            study.ask().set_user_attr(trials.OWNER, trials.this_process())
        return number

    monkeypatch.setattr(trials, "begun_here", seen_by_both)
    made = optimise(search(2), storage)
    assert [trial.state.name for trial in trials_of(storage)] == ["COMPLETE", "RUNNING", "FAIL"]
    assert len(made.rows) == 1 and made.caption.endswith("; 1 go on in other processes")


def test_a_trial_of_a_process_that_died_meanwhile_is_taken_over():
    """Also by one that began before: its own last trial done, it looks again."""
    storage, seen = optuna.storages.InMemoryStorage(), []

    def runs(cell, path, watch):
        seen.append(path)
        if len(seen) == 1:
            with pytest.raises(Killed):
                optimise(search(4), storage, killed, owner=f"{trials.this_process()}0")
        return run(cell, path, watch)

    def killed(cell, path, watch):
        seen.append(path)
        raise Killed

    made = optimise(search(4), storage, runs)
    assert len(made.rows) == 4 and len(seen) == 5 and len(set(seen)) == 4
    assert [row[1][-1] for row in made.rows] == ["complete"] * 4


@pytest.mark.parametrize("maximise", [False, True])
def test_a_trial_is_pruned_by_its_validation_losses(tmp_path, maximise):
    """Five trials have validation losses of 1, the sixth of 2: it ends at its first. A line cut short is not read."""
    storage, ended, numbers = optuna.storages.InMemoryStorage(), [], iter(range(9))

    def runs(cell, path, watch):
        path.mkdir()
        bad = next(numbers) == 5
        for step in (1, 2, 3):
            row = {"step": step, "loss": 1.0, "validation_loss": 1.0 + bad}
            with (path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n" + json.dumps({"step": step}) + '\n{"step": "a"}\n{"step": 9, "valid')
            watch()
            (path / "metrics.jsonl").write_text((path / "metrics.jsonl").read_text().rpartition("\n")[0] + "\n")
        ended.append(path)
        return run(cell, path, watch)

    def in_folder(point):
        cell, path = cell_of(point)
        return cell, tmp_path / str(path)

    searched = search(7, maximise=maximise)
    made = study.optimise(searched, storage, suggest, in_folder, runs, lambda line: None)
    states = [cells[-1] for _, cells in made.rows]
    assert states == ["complete"] * 5 + ["pruned", "complete"] and len(ended) == 6
    pruned = trials_of(storage)[5]
    assert pruned.intermediate_values == {1: -2.0 if maximise else 2.0}
    unpruned = study.optimise(search(1, prune=False), None, suggest, in_folder, lambda *given: run(*given), print)
    assert len(unpruned.rows) == 1


def test_pruning_does_not_depend_on_when_the_losses_were_read(tmp_path):
    """A run that ends before anybody looked is judged by the same rows."""
    numbers = iter(range(9))

    def runs(cell, path, watch):
        path.mkdir()
        worse = next(numbers) == 5
        rows = [{"step": step, "validation_loss": 1.0 + worse} for step in (1, 2)]
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"metrics": {METRIC: {"mean": loss(cell), "sem": 0.1}}}

    in_folder = lambda point: (cell_of(point)[0], tmp_path / str(cell_of(point)[1]))
    made = study.optimise(search(6), None, suggest, in_folder, runs, lambda line: None)
    assert [cells[-1] for _, cells in made.rows] == ["complete"] * 5 + ["pruned"]


def test_workers_share_a_study():
    """Two at a time: each waits for the other, so one alone would never end."""
    together = threading.Barrier(2, timeout=60)

    def runs(cell, path, watch):
        together.wait()
        return run(cell, path, watch)

    assert len(optimise(search(6, workers=2), runs=runs).rows) == 6


def test_what_is_wrong_is_told_before_a_study_is_made():
    storage = optuna.storages.InMemoryStorage()

    def nothing_fits(point):
        raise UserError("unknown config key")

    with pytest.raises(UserError, match="unknown config key"):
        study.rehearse(suggest, nothing_fits, seed=0)
    with pytest.raises(UserError, match="unknown --metric 'trained/los': did you mean 'trained/loss'"):
        optimise(search(metric="trained/los"), storage)
    assert len(optimise(search(2), storage).rows) == 2, "the run whose metric was misspelt counts once it is known"
    with pytest.raises(UserError, match="--study s: .* minimize"):
        optimise(search(maximise=True), storage)


def test_who_is_dead_and_who_is_not():
    host, pid, start = trials.this_process().split(" ")
    assert not trials.is_dead(f"{host} {pid} {start}") and not trials.is_dead(DEAD)
    assert trials.is_dead(f"{host} {pid} {start}0"), "another process had this number"
    assert trials.is_dead(f"{host} {2**22 + 1} {start}")


@pytest.mark.parametrize("text", ["studies.log", "sqlite:///studies.db"])
def test_a_study_is_kept_in_a_file_or_a_database(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    half = optimise(search(1), study.storage_of(text))
    whole = optimise(search(2), study.storage_of(text))
    assert whole.rows[:1] == half.rows and whole.csv() == optimise(search(2)).csv()
    assert [path.name for path in tmp_path.iterdir()] == [text.rpartition("/")[2]]


def test_a_file_that_holds_no_study_is_one_line(tmp_path):
    (tmp_path / "studies.log").write_text("garbage\n")
    with pytest.raises(UserError, match="--storage: cannot read or write the study s: "):
        optimise(search(1), study.storage_of(str(tmp_path / "studies.log")))


def test_a_database_that_is_not_there_is_one_line():
    with pytest.raises(UserError, match="--storage nosql://x: "):
        study.storage_of("nosql://x")
