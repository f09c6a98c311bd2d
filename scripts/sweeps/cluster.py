"""Cells as jobs of a cluster, by submitit: SLURM, or processes of this machine.

A file describes a cluster:

    CLUSTER = "slurm"                                   # or "local"
    PARAMETERS = dict(timeout_min=240, cpus_per_task=4, slurm_partition="main")      # of submitit.AutoExecutor
    REQUEUES = 5                                        # times that a job may be preempted or run out of time

A job runs experiments.run and resumes from its checkpoint when it is requeued. It outlives the sweep: the same command
again waits for the jobs that are still there.
"""

import dataclasses
import hashlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.harness import config_files, ending
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.run_directory import write_text
from scripts.sweeps.processes import Broken, Ended, result_of

_LOCAL = ("local", dict(timeout_min=60 * 24 * 30), 0)  # CLUSTER, PARAMETERS, REQUEUES of --cluster local
_LOOK_EVERY_S, _ASK_EVERY_S, _LATE_S = 1.0, 15.0, 15.0
_FRESH_S = 10.0  # less than the time after which a new job is asked for: no answer is older than the job
_KILLED_AFTER_S = 90  # clusters kill what still runs so long after a signal, 30 s by default
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)  # that say a job must end


class Job:
    """What runs on the cluster: experiments.run with these arguments, in a process that ends with it."""

    def __init__(self, arguments: list[str], requeues: int):
        self._arguments, self._requeues = arguments, requeues

    def __call__(self) -> tuple[int, str]:
        """The exit code of the run and what it said on stderr. Does not return where the cluster ends the job."""
        if int(os.environ.get("SLURM_RESTART_COUNT", "0")) > self._requeues:
            return Broken.exit_code, f"the job was requeued more than {self._requeues} times"
        command = [sys.executable, "-m", "experiments.run", *self._arguments]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=ending.environment_of_children())
        print(done.stderr, end="", file=sys.stderr)
        if done.returncode in [code for number in _SIGNALS for code in (-number, 128 + number)]:
            time.sleep(_KILLED_AFTER_S)  # a result now would say that the job is over; it may be requeued
        return done.returncode, done.stderr

    def checkpoint(self) -> Any:
        """The job to run when this one is requeued: itself."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Where jobs are submitted.

    Attributes:
      executor: of submitit.
      requeues: times that a job may be requeued.
    """

    executor: Any
    requeues: int

    @classmethod
    def of(cls, spec: str, folder: Path) -> "Cluster":
        """'local', or the cluster that a file describes; jobs leave logs in `folder`. Raises UserError."""
        found = _LOCAL if spec == "local" else config_files.definitions(Path(spec), "CLUSTER", "PARAMETERS", "REQUEUES")
        name, parameters, requeues = found
        if "timeout_min" not in parameters:
            raise ConfigError(f"{spec}: PARAMETERS needs timeout_min, the minutes that a job may take")
        try:
            import submitit
        except ImportError as error:
            raise UserError("--cluster needs submitit: python -m pip install '.[sweep]'") from error
        try:
            executor = submitit.AutoExecutor(folder.absolute(), name, **{f"{name}_max_num_timeout": requeues})
            executor.update_parameters(**parameters)
        except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"{spec}: {str(error).splitlines()[0]}") from error
        return cls(executor, requeues)

    def run(self, arguments: list[str], path: Path, watch: Callable[[], None]) -> dict[str, Any]:
        """The result.json content of experiments.run with these arguments, as a job that writes the folder `path`.

        Waits for the job that an earlier sweep submitted for it, if that is still there. watch() is called again and
        again; an exception of it cancels the job, other than Ended, which leaves it for the next sweep. Raises Diverged
        and UserError as the run does, Broken where the job was lost.
        """
        job = self._submitted(arguments, path)
        ending = job.task(0).paths.result_pickle
        asked, lost = time.monotonic(), None
        while not ending.exists():
            try:
                watch()
            except Ended:
                raise
            except Exception:
                _cancel(job)
                raise
            now = time.monotonic()
            if lost and now - lost > _LATE_S:
                raise Broken(f"job {job.job_id} ended without a word: see {job.task(0).paths.stderr}")
            if lost is None and now - asked > _ASK_EVERY_S:
                asked, lost = now, None if _is_there(job) else now
            time.sleep(_LOOK_EVERY_S)
        try:
            code, said = job.task(0).result()
        except Exception as error:  # whatever submitit made of the job's end
            raise Broken(f"job {job.job_id}: {_last_line(error)}: see {job.task(0).paths.stderr}") from error
        return result_of(code, said, path)

    def _submitted(self, arguments: list[str], path: Path) -> Any:
        """The job of a run folder: the one there is, else a new one."""
        executor = self.executor._executor  # of the cluster that was chosen; the class of its jobs is not public
        mark = executor.folder / f"{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]}.{executor.name()}"
        if mark.exists():
            tasks = range(executor._num_tasks())
            job = executor.job_class(executor.folder, mark.read_text(), list(tasks))
            if _is_there(job) and not job.task(0).paths.result_pickle.exists():
                return job
        with ending.undisturbed():
            job = self.executor.submit(Job(arguments, self.requeues))
            write_text(mark, job.job_id)
        return job


def _cancel(job: Any) -> None:
    """Ends a job. A process of this machine is killed: in the background of a shell it ignores submitit's SIGINT."""
    job.cancel(check=False)
    process = getattr(job, "_process", None)
    if process is not None:
        process.kill()  # the run that it has started ends with it


def _is_there(job: Any) -> bool:
    """Whether a job waits or runs; True where the cluster does not answer."""
    process = getattr(job, "_process", None)
    if process is not None:
        return process.poll() is None
    if type(job).__name__ == "LocalJob":  # of an earlier sweep
        return Path(f"/proc/{job.job_id}").exists()
    with _QUEUE.lock:
        if time.monotonic() - _QUEUE.asked > _FRESH_S:
            _QUEUE.asked = time.monotonic()
            done = subprocess.run(["squeue", "--noheader", "--me", "--format=%i"], capture_output=True, text=True)
            _QUEUE.jobs = None if done.returncode else set(done.stdout.split())
        return _QUEUE.jobs is None or job.job_id in _QUEUE.jobs


@dataclasses.dataclass
class _Queue:
    """What SLURM said of this user's jobs, for all threads that ask: None where it did not answer."""

    asked: float = -math.inf
    jobs: set[str] | None = None
    lock: Any = dataclasses.field(default_factory=threading.Lock)


_QUEUE = _Queue()


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("---", "You can", "or"))]
    return lines[-1] if lines else type(error).__name__
