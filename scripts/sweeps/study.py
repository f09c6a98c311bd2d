"""A search by Optuna: trials that are runs, in a study that outlives its processes and that many of them may share."""

import concurrent.futures
import dataclasses
import json
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.harness.errors import Diverged, UserError, first_line
from experiments.harness.tables import Cell as Number
from experiments.harness.tables import Table, measured
from kvq_jax.names import unknown
from scripts.sweeps import trials
from scripts.sweeps.cells import Cell, Point
from scripts.sweeps.processes import Ended
from scripts.sweeps.space import Suggest, import_optuna

Watch = Callable[[], None]  # called while a run goes on; what it raises ends the run
Run = Callable[[Cell, Path, Watch], Mapping[str, Any]]  # the result.json content of a cell
_RETRIES, _HEARTBEAT_S = 3, 60


@dataclasses.dataclass(frozen=True)
class Search:
    """What a study looks for.

    Attributes:
      name: of the study.
      trials: of the study, in all processes that share it. Those of other hosts count once they have finished: where
        such a process dies nobody here knows, so that several hosts may end with a few trials more.
      metric: of a result, such as 'trained/mse@5'.
      maximise: it, or else minimise it.
      prune: end a trial whose least validation loss so far is above the median of five or more earlier trials.
      seed: of the sampler, with the place of a trial among the others: each draws for itself, and with one worker a
        study that was killed and resumed suggests what any other does.
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
            return optuna.storages.RDBStorage(text, **beat, heartbeat_stale_trial_callback=trials.again(_RETRIES))
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
      UserError: an unknown metric, another direction than the study has; every trial failed.
      Diverged: every trial failed, and the last because it diverged.
    """
    optuna = import_optuna()
    direction = "maximize" if search.maximise else "minimize"
    pruner = optuna.pruners.MedianPruner() if search.prune else optuna.pruners.NopPruner()
    options = dict(study_name=search.name, storage=storage, pruner=pruner, load_if_exists=True)
    try:
        study = optuna.create_study(direction=direction, **options)
    except Exception as error:  # of any driver of a database, or of what a file holds
        raise UserError(f"--storage: cannot read or write the study {search.name}: {first_line(error)}") from error
    if study.direction.name.lower() != direction:
        raise UserError(f"--study {search.name}: it is there, and is to {study.direction.name.lower()} its metric")
    owner, run_again, stopping = owner or trials.this_process(), trials.again(), threading.Event()
    trials.recover(study, run_again)

    def watch(look: Watch) -> None:
        if stopping.is_set():
            raise Ended("the study was stopped")
        look()

    def objective(trial) -> float:
        trial.set_user_attr(trials.OWNER, owner)
        if trials.SUGGESTED not in trial.user_attrs and trials.begun_here(study, trial.number) >= search.trials:
            study.stop()  # meanwhile another process has begun the last
            raise _Failed
        point = suggest(trial)
        trial.set_user_attr(trials.SUGGESTED, True)
        try:
            cell, path = cell_of(point)
            trial.set_user_attr(trials.RUN, str(path))
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
            trial.set_user_attr(trials.CODE, error.exit_code)
            trial.set_user_attr(trials.ERROR, str(error))
            say(f"error: trial {trial.number}: {error}")
            raise _Failed from error
        if search.metric not in content["metrics"]:
            run_again(study, study.get_trials(deepcopy=False)[trial.number])
            raise UserError(unknown("--metric", search.metric, content["metrics"]))
        summary = content["metrics"][search.metric]
        trial.set_user_attr("sem", summary["sem"])
        if summary["mean"] is None:
            trial.set_user_attr(trials.CODE, Diverged.exit_code)
            trial.set_user_attr(trials.ERROR, f"{search.metric} is not finite")
            raise _Failed
        return summary["mean"]

    def stop_at_the_last(study, trial) -> None:
        trials.recover(study, run_again)  # of a process that died meanwhile
        if trials.begun_here(study) >= search.trials:
            study.stop()

    study.sampler = trials.sampler_of(search.seed)
    if trials.begun_here(study) < search.trials:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # beside this one, which hears signals
            options = dict(n_jobs=search.workers, catch=_Failed, callbacks=[stop_at_the_last])
            try:  # from the first moment: a signal may come before submit() returns
                thread.submit(study.optimize, objective, **options).result()
            finally:
                stopping.set()
    _check_some_succeeded(study, search)
    return table(study, search)


def _check_some_succeeded(study, search: Search) -> None:
    """Raises the error of the last trial where all have failed."""
    found = trials.counted(study)
    if found and all(trial.state.name == "FAIL" for trial in found):
        diverged = trials.CODE in (told := found[-1].user_attrs) and told[trials.CODE] == Diverged.exit_code
        message = f"--study {search.name}: all {len(found)} trials failed; the last: {trials.why(found[-1])}"
        raise (Diverged if diverged else UserError)(message)


def table(study, search: Search) -> Table:
    """The trials of a study: parameters, metric, and what became of each."""
    found = trials.counted(study)
    keys = sorted({key for trial in found for key in trial.params})
    rows = []
    for number, trial in enumerate(found):
        parameters = [str(trial.params[key]) if key in trial.params else "" for key in keys]
        complete = trial.state.name == "COMPLETE"
        value = measured({"mean": trial.value, "sem": trial.user_attrs["sem"]}) if complete else Number()
        rows.append((str(number), [*parameters, value, trial.state.name.lower()]))
    done = [trial.value for trial in found if trial.state.name == "COMPLETE"]
    best = (max if search.maximise else min)(done, default=None)
    said = f"{len(done)} of {len(found)} trials are complete" + (f", the best {best:.6g}" if done else "")
    failed = [trial for trial in found if trial.state.name == "FAIL"]
    said += f"; {len(failed)} failed, the last: {trials.why(failed[-1])}" if failed else ""
    others = [trial for trial in trials.begun(study) if trial.state.name == "RUNNING"]
    said += f"; {len(others)} go on in other processes" if others else ""
    return Table(f"Study {search.name}", ["trial", *keys, search.metric, "state"], rows, said)


def _validation(line: str) -> tuple[int, float] | None:
    """Step and validation loss of a line of metrics.jsonl; None for one without, and one that is cut or damaged."""
    try:
        row = json.loads(line)
        return int(row["step"]), float(row["validation_loss"])
    except (ValueError, TypeError, KeyError):
        return None


class _Validation:
    """Reports the validation losses of a run to its trial, each once. Raises TrialPruned where it should end."""

    def __init__(self, trial, file: Path, maximise: bool):
        self._trial, self._file, self._sign, self._last = trial, file, -1 if maximise else 1, 0

    def __call__(self) -> None:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        for step, loss in filter(None, map(_validation, lines)):
            if step > self._last:
                self._last = step
                self._trial.report(self._sign * loss, step)
                if self._trial.should_prune():
                    raise import_optuna().TrialPruned
