"""Stops a run again and again and asks whether anything was lost: python -m scripts.soak --kills 50

A small run is made once without a stop. Then it is made again, and stopped at random moments: by SIGKILL, SIGTERM,
Ctrl-C or a disk that is full, for which a limit on the size of files stands. Each start resumes what the last one left.
A run that comes to its end must be the first one to the bit, in metrics, losses and the state of training, and all its
files whole; then the next one begins. The exit code is 1 where anything differs.
"""

import collections
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from absl import flags

from experiments.harness import command_line, ending, placement
from experiments.harness.errors import UserError
from experiments.harness.outcome import outcome

_KILLS = flags.DEFINE_integer("kills", 50, "stops in all", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "of the moments and the kinds of the stops", lower_bound=0)
_WORKDIR = flags.DEFINE_string("workdir", "runs/soak", "folder of the runs; it must not exist")

_RUN = (
    "--config=configs/intention/sine.py:model=neural_process,preset=tiny",
    "--config.train.checkpoint_every=20",
    "--config.train.steps=200",
    "--config.train.select=best",
)
_FULL = "full disk"
# How a run is stopped -> the exit codes that it may leave with: 0 where it had come to its end before, less than 0 by
# the signal itself, before the libraries were imported.
_STOPS = {"SIGKILL": {-9, 0}, "SIGTERM": {143, -15, 0}, "SIGINT": {130, -2, 0}, _FULL: {1, 2, 0}}
_LARGEST_LIMIT = 128  # of the size of files, in blocks of 512 bytes: some files fit and others do not


def _soak(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    folder = Path(_WORKDIR.value)
    if folder.exists():
        raise UserError(f"--workdir {folder}: expected a folder that does not exist")
    chance, counts, faults = random.Random(_SEED.value), collections.Counter(), []
    started = time.monotonic()
    _finish(folder / "first", faults)
    if faults:
        raise UserError(f"the first run: {faults[0]}")
    seconds = time.monotonic() - started
    expected, run, finished = outcome(folder / "first"), folder / "run", 0
    for number in range(_KILLS.value):
        stop = chance.choice(list(_STOPS))
        code, said = _stopped(run, stop, chance.uniform(0, seconds), chance.randrange(_LARGEST_LIMIT))
        counts[f"{stop} {'too late' if code == 0 else code}"] += 1
        print(f"{number}: {stop} {code}", flush=True)
        if code not in _STOPS[stop] or len(said.splitlines()) > 1:
            faults.append(f"stop {number}, {stop}: exit code {code}, said {said[-2000:]!r}")
        if (run / "result.json").exists() or number == _KILLS.value - 1:
            _finish(run, faults)  # also draws what a stop left undrawn
            if not (run / "result.json").exists():
                break  # the last fault says why
            finished += 1
            found = outcome(run)
            different = [what for what in expected if found[what] != expected[what]]
            if different:
                faults.append(f"stop {number}, {stop}: {', '.join(different)} are not those of the first run")
                run.rename(folder / f"different-{number}")
            else:
                shutil.rmtree(run)
    print(f"{_KILLS.value} stops of {finished} runs in {time.monotonic() - started:.0f} s")
    print("\n".join(f"  {count:4} x {what}" for what, count in sorted(counts.items())))
    for fault in faults:
        print(fault)
    print("every run ended to the bit" if not faults else f"{len(faults)} faults: see {folder}")
    if faults:
        raise SystemExit(1)
    shutil.rmtree(folder)


def _start(path: Path, blocks: int | None = None) -> subprocess.Popen:
    """A run, whose files may have so many blocks (None: any number)."""
    command = [sys.executable, "-m", "experiments.run", *_RUN, f"--workdir={path}"]
    limited = [] if blocks is None else ["sh", "-c", f'ulimit -f {blocks}; exec "$0" "$@"']
    pipes = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    environment = ending.environment_of_children() | placement.as_many_threads()
    return subprocess.Popen([*limited, *command], **pipes, env=environment)


def _stopped(path: Path, stop: str, seconds: float, blocks: int) -> tuple[int, str]:
    """The exit code of a run that is stopped after some seconds, or at files of so many blocks; what it said."""
    full = stop == _FULL
    process = _start(path, blocks if full else None)
    try:
        said = process.communicate(timeout=None if full else seconds)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.Signals[stop])
        said = process.communicate()[1]
    return process.returncode, said


def _finish(path: Path, faults: list[str]) -> None:
    """Runs to the end."""
    process = _start(path)
    said = process.communicate()[1]
    if process.returncode or said:
        faults.append(f"{path}: exit code {process.returncode}, said {said[-2000:]!r}")


if __name__ == "__main__":
    sys.exit(command_line.guarded(_soak, sys.argv))
