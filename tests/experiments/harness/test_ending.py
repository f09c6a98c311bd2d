"""How a command ends: in one line, with an exit code that says why."""

import errno
import gc
import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.harness import command_line, ending
from experiments.harness.errors import ConfigError, Diverged, Stopped
from tests import in_process
from tests.processes import ROOT


def fails(error):
    def command(argv):
        raise error

    return command


@pytest.mark.parametrize(
    "error, code, said",
    [
        (ZeroDivisionError("by\nnought"), 1, "error: ZeroDivisionError: by (--debug shows where)"),
        (ConfigError("config.x:\n  no"), 2, "error: config.x: no"),
        (Diverged("at step 3"), 3, "error: at step 3"),
        (OSError(errno.ENOSPC, "No space left", "f"), 1, "error: No space left: make room, then "),
        (PermissionError(errno.EACCES, "Permission denied", "f"), 2, "error: f: Permission denied"),
    ],
)
def test_an_error_is_one_line(error, code, said, capsys):
    assert command_line.guarded(fails(error), ["program"], cache=False) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said)


def test_debug_shows_where(capsys):
    assert command_line.guarded(fails(ZeroDivisionError("by nought")), ["program", "--debug"], cache=False) == 1
    told = capsys.readouterr().err
    assert "in command" in told and told.splitlines()[-1].startswith("error: ZeroDivisionError: by nought")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_one_line_that_says_how_to_go_on(number, code, capsys, monkeypatch):
    def command(argv):
        os.kill(os.getpid(), number)
        time.sleep(60)

    before, left = signal.getsignal(number), []
    monkeypatch.setattr(ending, "leave_at_exit", left.append)
    argv = ["program", "--restart", "--config=a b.py", "--restart=true", "--norestarts"]
    assert command_line.guarded(command, argv, cache=False) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: stopped by {number.name}; this goes on: ")
    assert line.endswith(" '--config=a b.py' --norestarts")
    assert signal.getsignal(number) == before and left == [code]


def test_a_signal_amid_a_garbage_collection_is_not_lost():
    """Its callbacks let no error out, and JAX has one that often runs."""
    calls, hook = [], sys.unraisablehook

    def collected(phase, info):
        calls.append(phase)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    gc.callbacks.append(collected)
    try:
        with ending.stoppable(), pytest.raises(Stopped, match="SIGTERM"):
            gc.collect()
            time.sleep(60)
    finally:
        gc.callbacks.remove(collected)
    assert calls and sys.unraisablehook is hook


def test_a_signal_waits_for_the_end_of_what_must_not_be_disturbed():
    done = []
    with ending.stoppable(), pytest.raises(Stopped, match="SIGINT"):
        with ending.undisturbed():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("whole")
        done.append("late")
    assert done == ["whole"]


def test_a_process_leaves_before_python_takes_itself_down():
    code = "import atexit; from experiments.harness import ending; atexit.register(print, 'late'); print('words'); "
    done = subprocess.run([sys.executable, "-c", code + "ending.leave_at_exit(130)"], cwd=ROOT, capture_output=True)
    assert done.returncode == 130 and done.stdout == b"words\n"


def test_a_child_ends_with_the_process_that_started_it():
    """A process starts another and is killed: the other hears of it."""
    child = "from experiments.harness import ending; import time; ending.end_with_parent(); print(1, flush=True); "
    middle = (
        "import os, subprocess, sys\n"
        "from experiments.harness import ending\n"
        "environment = ending.environment_of_children()\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env=environment, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", middle, child + "time.sleep(120)"]
    pid = int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout)
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().split(")")[-1].split()[0] == "Z":  # it ended, and nobody asked how
                    return
        except FileNotFoundError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the child went on")


def test_a_process_is_asked_to_end():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    ending.end(process)
    assert process.wait() == -signal.SIGTERM


def test_nobody_is_told_of_a_pipe_that_was_closed():
    for end in (" | true", " >&- 2>&-"):
        command = f"{sys.executable} -m scripts.collect --help{end}; exit 0"
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("", "")


def test_the_cells_of_a_sweep_stand_alone(tmp_path, monkeypatch):
    """An error of one cell that nobody foresaw: it is told, the others go on."""
    begun = []

    def launch(config, path, *given):
        begun.append(config.model.name)
        if len(begun) == 2:
            raise ZeroDivisionError("by nought")
        raise Diverged("at step 3") if len(begun) == 3 else ConfigError("config.x")

    monkeypatch.setattr("experiments.harness.launch.launch", launch)
    done = in_process.run("scripts.sweep", "--config=configs/intention/sine.py:preset=tiny", f"--workdir={tmp_path}")
    lines = done.stderr.splitlines()
    assert len(begun) == len(lines) == 4 and done.returncode == 2
    assert "ZeroDivisionError: by nought" in lines[1] and lines[2].endswith("at step 3")
