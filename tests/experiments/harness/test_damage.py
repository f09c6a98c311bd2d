"""Every file of a run deleted, emptied, cut short and with one bit flipped: what the next start makes of it.

It ends with the same numbers, or with one line; it never goes on from numbers that nobody computed.
"""

import contextlib
import dataclasses
import functools
import json
import shutil
import signal
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import common
from experiments.harness.checkpoints import Checkpoints, Record
from experiments.harness.errors import ConfigError, Stopped, UserError
from experiments.harness.evaluation import part_of
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.placement import build_placement
from experiments.harness.results import load_results, read
from experiments.harness.run_directory import RunDirectory
from experiments.harness.step import make_init
from tests.experiments.harness.launched import run

AFRESH = "--restart begins afresh"


def flip(content: bytes, place: float) -> bytes:
    """The content with one bit of one byte changed, so far into it."""
    changed = bytearray(content)
    changed[int(place * len(content))] ^= 4
    return bytes(changed)


DAMAGES = {
    "deleted": lambda content: None,
    "emptied": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "flipped": lambda content: flip(content, 0.5),
}


def damage(file, how) -> None:
    content = DAMAGES[how](file.read_bytes())
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


def test_a_checkpoint_is_read_as_it_was_saved_or_passed_over(line, tmp_path):
    optimizer = build_optimizer(OptimizerSettings(**common.optimizer("adam", 0.1)), 2)
    placement = build_placement("single", seeds=2, batch_size=1)
    states = [
        jax.jit(jax.vmap(make_init(line, optimizer)))(np.arange(2, dtype=np.uint32) + 2 * step) for step in (0, 1)
    ]
    kept = Checkpoints(tmp_path / "whole")
    for step, state in enumerate(states):
        kept.save(step, state, Record(step=step, wall_time_s=0.5))

    def restored(folder) -> tuple[int, list[str]]:
        said = []
        state, record = Checkpoints(folder).restore(jax.eval_shape(lambda: states[0]), placement, said.append)
        jax.tree.map(np.testing.assert_array_equal, state, states[record.step])
        assert record.wall_time_s == 0.5
        return record.step, said

    assert restored(tmp_path / "whole") == (1, [])
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole" / "1").rglob("*") if path.is_file()]
    found = {}
    for file in files:
        for how in DAMAGES:
            shutil.copytree(tmp_path / "whole", tmp_path / "copy")
            if (tmp_path / "copy" / file).stat().st_size:
                damage(tmp_path / "copy" / file, how)
                step, said = restored(tmp_path / "copy")
                assert len(said) == 1 - step and all("is damaged" in note for note in said), (file, how)
                found[file, how] = step
            shutil.rmtree(tmp_path / "copy")
    # What holds numbers is among them: the state's largest file, and the record.
    assert any(found[file, "flipped"] == 0 for file in files if file.parts[1] == "state")
    assert found[next(file for file in files if file.parts[1] == "record" and "meta" in file.name), "flipped"] == 0
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(UserError, match=f"no checkpoint in .*whole can be read: {AFRESH}"):
        restored(tmp_path / "whole")


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """The folder of the finished run that all tests copy; the first of them makes it."""
    return tmp_path_factory.mktemp("damage") / "whole"


@pytest.fixture
def copy(config, kept, tmp_path) -> Path:
    """A copy of a finished run."""
    if not kept.exists():
        run(config, kept)
    return shutil.copytree(kept, tmp_path / "copy")


def test_damage_that_is_refused_in_a_line(config, copy, kept):
    refused = {
        "config.json": "is missing or damaged|belongs to another config",
        "result.json": AFRESH,
        "examples.npz": "is missing|is damaged",
    }
    for name, message in refused.items():
        for how in [how for how in DAMAGES if (name, how) != ("result.json", "deleted")]:
            damage(copy / name, how)
            with pytest.raises(UserError, match=message):
                assert run(config, copy)[0].examples
            shutil.copy(kept / name, copy / name)


def test_damage_that_a_run_goes_on_over(config, copy, kept):
    """The metrics are lost, and it is said; a result that is gone is made again, and so is the picture."""
    for how in ("deleted", "cut short", "flipped"):
        damage(copy / "metrics.jsonl", how)
        (copy / "result.json").unlink()
        (copy / "figure.png").unlink()
        again, told = run(config, copy)
        assert again.content["metrics"] == read(kept / "result.json")["metrics"] and (copy / "figure.png").exists()
        assert "metrics.jsonl was lost or changed up to step 4" in told
        shutil.copy(kept / "metrics.jsonl", copy)
    (copy / "figure.png").rename(copy / ".figure.png.x7_1.part")  # killed while it drew
    (copy / "error.txt").write_text("a full disk")  # or ended by it
    again, told = run(config, copy)
    assert "already finished" in told and {path.name for path in copy.iterdir()} == {
        path.name for path in kept.iterdir()
    }


@pytest.fixture
def in_parts(monkeypatch, config, line):
    """(folder, part to be killed in, count) -> the result of a run evaluated in so many parts, and how many it made."""
    test = np.arange(6, dtype=np.float32)
    evaluate = lambda variables, data, key: {"error": (variables["params"]["w"] - data) ** 2}

    def started(folder, killed_in=None, count=3):
        parted = dict(parts=count, part=functools.partial(part_of, parts=count))
        split = dataclasses.replace(line, data=line.data | {"test": test}, evaluate=evaluate, **parted)
        monkeypatch.setattr(sys.modules["experiments.paper.line.experiment"], "build", lambda *given: split)
        computed = []

        @contextlib.contextmanager
        def phase(console, what, parts):
            def part_done():
                computed.append(len(computed) + 1)
                if len(computed) == killed_in:
                    raise Stopped(signal.SIGTERM)

            yield part_done
            assert len(computed) == parts

        monkeypatch.setattr("experiments.harness.progress.phase", phase)
        if killed_in:
            with pytest.raises(Stopped):
                run(config, folder)
            return None
        return run(config, folder)[0].content, len(computed)

    return started


def test_an_evaluation_goes_on_with_the_part_it_was_killed_in(in_parts, tmp_path):
    whole, computed = in_parts(tmp_path / "whole")
    assert computed == 3 and whole["metrics"]["trained/error"]["n"] == 6
    assert not (tmp_path / "whole" / "evaluation").exists()
    folder = tmp_path / "killed"
    in_parts(folder, killed_in=3)
    parts = sorted((folder / "evaluation").iterdir())
    assert [part.name for part in parts] == ["trained-0-of-3.npz", "trained-1-of-3.npz"]
    again, computed = in_parts(shutil.copytree(folder, tmp_path / "again"))
    assert computed == 1 and again["metrics"] == whole["metrics"]
    for how in DAMAGES:
        copied = shutil.copytree(folder, tmp_path / how)
        damage(copied / "evaluation" / "trained-1-of-3.npz", how)
        again, computed = in_parts(copied)
        assert computed == 2 and again["metrics"] == whole["metrics"]


def test_parts_of_an_evaluation_in_another_number_of_parts_are_not_used(in_parts, tmp_path):
    """They have other tasks."""
    whole, _ = in_parts(tmp_path / "whole")
    in_parts(tmp_path / "killed", killed_in=4, count=6)
    again, computed = in_parts(tmp_path / "killed")
    assert computed == 3 and again["metrics"] == whole["metrics"]


def test_parts_with_other_metrics_are_not_used(in_parts, tmp_path):
    """Those of older code, which had not all of them."""
    whole, _ = in_parts(tmp_path / "whole")
    in_parts(folder := tmp_path / "killed", killed_in=3)
    np.savez(folder / "evaluation" / "trained-1-of-3.npz", wall_time_s=1.0, **{"metrics/other": [[0.0, 0.0]]})
    again, computed = in_parts(folder)
    assert computed == 2 and again["metrics"] == whole["metrics"]


def test_an_evaluation_that_is_too_large_loses_nothing(config, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        memory = [2**40]
        patch.setattr("experiments.harness.checks.memory_bytes", lambda: memory[-1])
        patch.setattr("experiments.harness.launch._keep_weights", lambda *given: memory.append(1))  # once it is trained
        with pytest.raises(ConfigError, match="config.evaluation: it takes 0.0 GiB of memory, and there are 0.0"):
            run(config, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "latest" / "4").is_dir()
    assert run(config, tmp_path / "run")[0].content["steps"] == 4


def test_parts_of_another_state_are_not_used_and_their_time_counts(in_parts, tmp_path):
    folder = tmp_path / "killed"
    in_parts(folder, killed_in=3)
    part = folder / "evaluation" / "trained-0-of-3.npz"
    with np.load(part) as file:
        arrays = dict(file)
    np.savez(part, **arrays | {"wall_time_s": 1000.0, "metrics/error": [[0.0, 0.0]]})
    again, _ = in_parts(shutil.copytree(folder, tmp_path / "as it was found"))
    assert again["wall_time_s"] > 1000
    shutil.rmtree(folder / "checkpoints")  # so that it is trained anew
    trained, computed = in_parts(folder)
    assert computed == 3 and trained["wall_time_s"] < 1000 and trained["metrics"] != again["metrics"]


def test_restart_takes_what_is_damaged_out_of_the_way(config, copy, kept):
    for file in copy.rglob("*"):
        if file.is_file() and file.name != "metrics.jsonl":
            file.write_bytes(b"")
    assert run(config, copy, restart=True)[0].content["metrics"] == read(kept / "result.json")["metrics"]
    assert (copy.with_name("copy.old-1") / "metrics.jsonl").read_bytes() == (kept / "metrics.jsonl").read_bytes()
    assert [result.folder for result in load_results([copy.parent])] == [copy]


def test_a_killed_first_write_leaves_a_folder_that_can_be_used(config, tmp_path):
    names = (".config.json.x7_1.part", ".result.json.x7_1.part", "lock")
    for name in names:
        (tmp_path / name).write_bytes(b"{")
    RunDirectory(tmp_path, config)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock"]
    (tmp_path / "thesis.tex").touch()
    (tmp_path / "config.json").unlink()
    with pytest.raises(UserError, match="is not empty and holds no run"):
        RunDirectory(tmp_path, config, restart=True)


def test_a_run_that_goes_on_keeps_its_folder(config, tmp_path):
    directory = RunDirectory(tmp_path / "run", config)
    with pytest.raises(UserError, match="another process is running in"):
        RunDirectory(directory.path, config, restart=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_error_that_nobody_foresaw_leaves_its_traceback(config, copy, monkeypatch):
    def fails(*given):
        raise ZeroDivisionError("by nought")

    (copy / "result.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("experiments.harness.launch.summarise", fails)
        with pytest.raises(ZeroDivisionError) as caught:
            run(config, copy)
    (note,) = caught.value.__notes__
    assert str(copy / "error.txt") in note and "in fails" in (copy / "error.txt").read_text()


def test_bad_input_that_shows_after_the_training_loses_none_of_it(config, kept, tmp_path, monkeypatch):
    def fails(*given):
        raise UserError("what was asked for cannot be drawn")

    with monkeypatch.context() as patch:
        patch.setattr("experiments.harness.launch.summarise", fails)
        with pytest.raises(UserError, match="cannot be drawn"):
            run(config, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "latest" / "4").is_dir()
    result, _ = run(config, tmp_path / "run")
    assert result.content["steps"] == 4 and "begun_with" not in result.content


@pytest.mark.parametrize(
    "what, other, said",
    [
        ("code", "0" * 16, "another code"),
        ("device", "1 x abacus", "another device, 1 x abacus"),
        ("versions", {"jax": "0.0.1"}, "other versions, jax 0.0.1"),
    ],
)
def test_a_run_says_what_it_was_begun_with(config, copy, what, other, said):
    (copy / "result.json").unlink()
    first = json.loads((copy / "origin.json").read_text())
    other = first["versions"] | other if what == "versions" else other
    (copy / "origin.json").write_text(json.dumps(first | {what: other}))
    result, told = run(config, copy)
    assert f"begun with {said}" in told and result.content["begun_with"][what] == other
    assert result.content[what] == first[what] and "facts" not in result.content["begun_with"]
    assert ("begun on 1 x abacus" in result.device) == (what == "device")


def test_a_run_says_what_it_went_on_with(config, copy):
    """Begun here, then twice on an abacus and by other code, then here: the other code alone left no state."""
    (copy / "result.json").unlink()
    first = json.loads((copy / "origin.json").read_text())
    states = sorted(str(path.relative_to(copy)) for path in copy.glob("checkpoints/*/*"))
    abaci = [first | {"found": states[:count], "device": "1 x abacus"} for count in (1, 2)]
    unborn = first | {"found": states, "code": "0" * 16}
    (copy / "origin.json").write_text("".join(json.dumps(each) + "\n" for each in (first, *abaci, unborn)))
    result, told = run(config, copy)
    assert told.count("the run") == 1 and "the run went on with another device, 1 x abacus" in told
    (other,) = result.content["went_on_with"]
    assert other["device"] == "1 x abacus" and "found" not in other and "begun_with" not in result.content
    assert result.device == "1 x cpu, also on 1 x abacus"


@pytest.mark.parametrize("state", [True, False])
def test_a_run_does_not_go_on_with_other_data(config, copy, line, state, monkeypatch):
    """Such as those of another --data_dir. Without a state and a part it began nothing."""
    (copy / "result.json").unlink()
    if not state:
        shutil.rmtree(copy / "checkpoints")
    other = dataclasses.replace(line, facts={"data": "another set"})
    monkeypatch.setattr(sys.modules["experiments.paper.line.experiment"], "build", lambda *given: other)
    if state:
        with pytest.raises(UserError, match="was begun with other data, see its origin.json: --restart begins afresh"):
            run(config, copy)
        assert (copy / "checkpoints").exists() and not (copy / "result.json").exists()
    else:
        assert run(config, copy)[0].content["facts"] == other.facts


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_without_a_state_began_nothing(config, copy, processes):
    """Whose states were lost, after the work of so many processes."""
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "checkpoints")
    first = json.loads((copy / "origin.json").read_text()) | {"device": "1 x abacus", "facts": {"data": "another set"}}
    lines = [first | {"found": ["checkpoints/latest/2"] * number} for number in range(processes)]
    (copy / "origin.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result, told = run(config, copy)
    assert "begun" not in told and "begun_with" not in result.content
    assert "went on" not in told and "went_on_with" not in result.content


@pytest.mark.parametrize("how", ["[]", '{"facts": {}', "versions"])
def test_a_damaged_origin_is_written_anew(config, copy, how):
    (copy / "result.json").unlink()
    first = json.loads((copy / "origin.json").read_text())
    (copy / "origin.json").write_text(json.dumps(first | {how: None}) if how == "versions" else how)
    result, told = run(config, copy)
    assert "begun" not in told and "begun_with" not in result.content
    (line,) = (copy / "origin.json").read_text().splitlines()
    assert json.loads(line) | {"found": []} == first


def test_parts_of_a_run_that_is_finished_go(config, copy):
    """It may have been killed between its result and them."""
    (copy / "evaluation").mkdir()
    (copy / "evaluation" / "trained-0-of-2.npz").write_bytes(b"")
    run(config, copy)
    assert not (copy / "evaluation").exists()


def test_a_result_that_was_changed_is_refused(copy):
    content = json.loads((copy / "result.json").read_text())
    content["metrics"]["trained/error"]["mean"] += 1.0
    (copy / "result.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="its numbers are not those that were written"):
        load_results([copy])
