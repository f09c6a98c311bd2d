"""Commands of the project, each in a process of its own that has imported the large libraries already.

A command takes two seconds to import them. One process does that and forks for each command, which then runs as
`python -m MODULE` does.
"""

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["flax.linen", "jax.numpy", "matplotlib.figure", "ml_collections", "numpyro", "optax"])
_LIMIT_S = 300


def run(module: str, *arguments) -> subprocess.CompletedProcess:
    """What `python -m MODULE ARGUMENTS` returns and prints, in the root of the project."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdout", "stderr")]
        process = _FORKS.Process(target=_execute, args=(module, [*map(str, arguments)], streams))
        process.start()
        process.join(_LIMIT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired([module, *arguments], _LIMIT_S)
        return subprocess.CompletedProcess(
            [module, *arguments], process.exitcode, *(path.read_text() for path in streams)
        )


def told(module: str, *arguments, code: int = 0) -> str:
    """Its standard output, or its one line on standard error where `code` is not 0. Any other exit code fails."""
    done = run(module, *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    if code:
        assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr if code else done.stdout


def _execute(module: str, arguments: list[str], streams: list[Path]) -> None:
    os.chdir(ROOT)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves without them
