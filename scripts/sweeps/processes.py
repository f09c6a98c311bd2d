"""Runs of a sweep in processes of their own: how they are started, watched and ended, and what their end says."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.harness import ending, placement
from experiments.harness.errors import Diverged, UserError
from experiments.harness.results import load_results
from experiments.harness.run_directory import locked

PATIENCE_S = 30.0  # of a sweep, for who is still in a run folder
_TRY_EVERY_S, _LOOK_EVERY_S = 0.2, 1.0


class Broken(UserError):
    """A run that an error ended which nobody foresaw, or that was killed."""

    exit_code = 1


class Ended(UserError):
    """A process that Ctrl-C or SIGTERM ended: what it worked on is not to blame, and resumes."""


# How a process reports its end; that it was told to end, by the signal that killed it or by an exit code of its own.
_KINDS = {kind.exit_code: kind for kind in (UserError, Diverged)} | {
    code: Ended for number in (signal.SIGINT, signal.SIGTERM) for code in (-number, 128 + number)
}


def run_in_process(
    arguments: list[str], path: Path, watch: Callable[[], None] = lambda: None, patience_s: float = PATIENCE_S
) -> dict:
    """The result.json content of experiments.run with these arguments, run in its own process.

    watch() is called again and again while it goes on; what it raises ends the process, which also ends with this one.
    Another process in the run folder is waited for, until patience ends; what it has finished is not run again. Raises
    Diverged and UserError as the run does, Broken where the process was killed.
    """
    wait_until_free(path, patience_s, watch)
    command = [sys.executable, "-m", "experiments.run", *arguments]
    pipes = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    environment = ending.environment_of_children() | placement.as_many_threads()
    with subprocess.Popen(command, **pipes, env=environment) as process:
        try:
            said = _said(process, watch)
        except BaseException:
            ending.end(process)
            raise
    return result_of(process.returncode, said, path)


def _said(process: subprocess.Popen, watch: Callable[[], None]) -> str:
    """What a process writes on stderr until it ends."""
    while True:
        try:
            return process.communicate(timeout=_LOOK_EVERY_S)[1]
        except subprocess.TimeoutExpired:
            watch()


def result_of(code: int, said: str, path: Path) -> dict[str, Any]:
    """The result.json content of the run in `path`, whose process ended with `code` and said this on stderr.

    Raises Diverged and UserError as the run did, Ended where a signal ended it, Broken where something else did.
    """
    if code:
        kind = _KINDS[code] if code in _KINDS else Broken
        last = said.strip().splitlines()[-1] if said.strip() else ""
        raise kind(last.removeprefix("error: ") or f"the process ended with {code}")
    return load_results([path])[0].content


def wait_until_free(path: Path, patience_s: float, watch: Callable[[], None] = lambda: None) -> None:
    """Waits until no process holds the run folder, or patience ends: one of a killed sweep may leave late."""
    waited_until = time.monotonic() + patience_s
    while (path / "lock").exists() and time.monotonic() < waited_until:
        try:
            locked(path).close()
            return
        except UserError:
            watch()
            time.sleep(_TRY_EVERY_S)
