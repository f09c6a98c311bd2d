"""A search by Optuna: trials that are runs, in a study that outlives its processes and that many of them may share."""

import concurrent.futures
import dataclasses
import json
import os
import socket
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.errors import Diverged, UserError
from experiments.harness.tables import Cell as Number
from experiments.harness.tables import Table, measured
from kvq_jax.names import unknown
from scripts.sweeps.cells import Cell, Ended, Point
from scripts.sweeps.space import Suggest, import_optuna

Watch = Callable[[], None]  # called while a run goes on; what it raises ends the run
Run = Callable[[Cell, Path, Watch], Mapping[str, Any]]  # the result.json content of a cell
_RETRIES, _HEARTBEAT_S = 3, 60
_OWNER, _SUGGESTED, _RUN, _ERROR = "owner", "suggested", "run", "error"  # user attributes of a trial


@dataclasses.dataclass(frozen=True)
class Search:
    """What a study looks for.

    Attributes:
      name: of the study.
      trials: when as many have finished, in all processes that share the study, it is over.
      metric: of a result, such as 'trained/mse@5'.
      maximise: it, or else minimise it.
      prune: end a trial whose least validation loss so far is above the median of five or more earlier trials.
      seed: of the sampler. With one worker, a study that was killed and resumed suggests what any other does.
      workers: trials of this process at a time.
    """

    name: str
    trials: int
    metric: str
    maximise: bool
    prune: bool
    seed: int
    workers: int


class _Failed(Exception):
    """A trial without a number: the study goes on."""


def storage_of(text: str):
    """Optuna's storage: a database where `text` is a URL, else a journal file. Raises UserError."""
    optuna = import_optuna()
    try:
        if "://" not in text:
            Path(text).absolute().parent.mkdir(parents=True, exist_ok=True)
            return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(text))
        beat = dict(heartbeat_interval=_HEARTBEAT_S, grace_period=2 * _HEARTBEAT_S)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.storages.RDBStorage(text, **beat, heartbeat_stale_trial_callback=_again(_RETRIES))
    except Exception as error:  # of any driver of a database
        raise UserError(f"--storage {text}: {str(error).splitlines()[0]}") from error


def rehearse(suggest: Suggest, cell_of: Callable[[Point], tuple[Cell, Path]], seed: int) -> None:
    """Makes the cell of one point, so that a space that does not fit the config is told before anything is written.

    Raises UserError.
    """
    optuna = import_optuna()
    cell_of(suggest(optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed)).ask()))


def optimise(
    search: Search,
    storage: Any,
    suggest: Suggest,
    cell_of: Callable[[Point], tuple[Cell, Path]],
    run: Run,
    say: Callable[[str], None] = print,
    owner: str | None = None,
) -> Table:
    """Runs the trials of a study that are still missing; returns the table of all.

    Trials of a process of this host that is dead are begun again with the same parameters. Their runs, whose folders
    follow from the parameters, resume. A trial that fails is recorded, and the study goes on.

    Args:
      search: what is looked for.
      storage: of Optuna.
      suggest: a trial's point.
      cell_of: the one cell of a point, and its run folder.
      run: a cell, here or elsewhere.
      say: tells what becomes of each trial.
      owner: who runs the trials; default: this process.

    Raises:
      UserError: an unknown metric, another direction than the study has.
    """
    optuna = import_optuna()
    direction = "maximize" if search.maximise else "minimize"
    pruner = optuna.pruners.MedianPruner() if search.prune else optuna.pruners.NopPruner()
    options = dict(study_name=search.name, storage=storage, pruner=pruner, load_if_exists=True)
    study = optuna.create_study(direction=direction, **options)
    if study.direction.name.lower() != direction:
        raise UserError(f"--study {search.name}: it is there, and is to {study.direction.name.lower()} its metric")
    owner, run_again, stopping = owner or this_process(), _again(), threading.Event()
    _recover(study, run_again)

    def watch(look: Watch) -> None:
        if stopping.is_set():
            raise Ended("the study was stopped")
        look()

    def objective(trial) -> float:
        trial.set_user_attr(_OWNER, owner)
        point = suggest(trial)
        trial.set_user_attr(_SUGGESTED, True)
        try:
            cell, path = cell_of(point)
            trial.set_user_attr(_RUN, str(path))
            say(f"trial {trial.number}: {cell.text} -> {path}")
            look = _Validation(trial, path / "metrics.jsonl", search.maximise)
            content = run(cell, path, lambda: watch(look))
            look()  # what came since the last look: whether a trial is pruned does not depend on its moment
        except Ended as error:
            run_again(study, study.get_trials(deepcopy=False)[trial.number])
            study.stop()
            say(f"trial {trial.number}: {error}; the same command goes on")
            raise _Failed from error
        except (UserError, Diverged) as error:
            trial.set_user_attr(_ERROR, str(error))
            say(f"error: trial {trial.number}: {error}")
            raise _Failed from error
        if search.metric not in content["metrics"]:
            run_again(study, study.get_trials(deepcopy=False)[trial.number])
            raise UserError(unknown("--metric", search.metric, content["metrics"]))
        summary = content["metrics"][search.metric]
        trial.set_user_attr("sem", summary["sem"])
        if summary["mean"] is None:
            trial.set_user_attr(_ERROR, f"{search.metric} is not finite")
            raise _Failed
        return summary["mean"]

    def next_trial(study, trial=None) -> None:
        """Seeds the sampler by the number of finished trials, and stops at the last."""
        finished = len(counted(study))
        if finished >= search.trials:
            study.stop()
        seed = int(np.random.SeedSequence([search.seed, finished]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=seed)

    missing = search.trials - len(counted(study))
    if missing > 0:
        next_trial(study)
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # beside this one, which hears signals
            options = dict(n_jobs=search.workers, catch=_Failed, callbacks=[next_trial])
            try:  # from the first moment: a signal may come before submit() returns
                thread.submit(study.optimize, objective, missing, **options).result()
            finally:
                stopping.set()
    return table(study, search)


def counted(study) -> list:
    """The finished trials, in their order, without those of killed processes, which others have repeated."""
    trials = study.get_trials(deepcopy=False)
    repeated = {number for trial in trials for number in trial.system_attrs.get("retry_history", ())}
    return [t for t in trials if t.state.is_finished() and _SUGGESTED in t.user_attrs and t.number not in repeated]


def table(study, search: Search) -> Table:
    """The trials of a study: parameters, metric, and what became of each."""
    trials = counted(study)
    keys = sorted({key for trial in trials for key in trial.params})
    rows = []
    for number, trial in enumerate(trials):
        parameters = [str(trial.params[key]) if key in trial.params else "" for key in keys]
        complete = trial.state.name == "COMPLETE"
        found = measured({"mean": trial.value, "sem": trial.user_attrs["sem"]}) if complete else Number()
        rows.append((str(number), [*parameters, found, trial.state.name.lower()]))
    done = [trial.value for trial in trials if trial.state.name == "COMPLETE"]
    best = (max if search.maximise else min)(done, default=None)
    said = f"{len(done)} of {len(trials)} trials are complete" + (f", the best {best:.6g}" if done else "")
    return Table(f"Study {search.name}", ["trial", *keys, search.metric, "state"], rows, said)


def this_process() -> str:
    """'host pid start': a process that no other has been or will be, where the system tells when it started."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def is_dead(owner: str) -> bool:
    """Whether a process, named as above, was one of this host and is gone."""
    host, pid, start = owner.split(" ")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _started(int(pid)) != start


def _started(pid: int) -> str:
    """When a process started, by the clock of the system; 'unknown' where it does not tell."""
    file = Path(f"/proc/{pid}/stat")
    return file.read_text().rpartition(")")[2].split()[19] if file.exists() else "unknown"


def _again(limit: int | None = None) -> Callable:
    """What adds a trial with the parameters of another, which it then counts for; no more than `limit` times."""
    optuna = import_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=limit)


def _recover(study, run_again: Callable) -> None:
    """Ends the trials of dead processes; those that have their parameters wait to be run again."""
    optuna = import_optuna()
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if _OWNER in trial.user_attrs and is_dead(trial.user_attrs[_OWNER]):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            if _SUGGESTED in trial.user_attrs:
                run_again(study, trial)


class _Validation:
    """Reports the validation losses of a run to its trial, each once. Raises TrialPruned where it should end."""

    def __init__(self, trial, file: Path, maximise: bool):
        self._trial, self._file, self._sign, self._last = trial, file, -1 if maximise else 1, 0

    def __call__(self) -> None:
        lines = self._file.read_text().splitlines(keepends=True) if self._file.exists() else []
        for row in (json.loads(line) for line in lines if line.endswith("\n")):
            if "validation_loss" in row and row["step"] > self._last:
                self._last = row["step"]
                self._trial.report(self._sign * row["validation_loss"], row["step"])
                if self._trial.should_prune():
                    raise import_optuna().TrialPruned
