"""The trials of a study that many processes may share: which count, whose process is dead, and what each draws."""

import math
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scripts.sweeps.space import import_optuna

# User attributes of a trial.
OWNER, SUGGESTED, RUN, ERROR, CODE = "owner", "suggested", "run", "error", "exit_code"
_REPEATS = "retry_history"  # system attribute of a trial, as Optuna names it: the numbers of those that it repeats
_UNSIGNED_S = 60  # after which a trial without an owner has none: its process was killed before it signed


def counted(study) -> list:
    """The finished trials, in their order, without those of killed processes, which others have repeated."""
    return [trial for trial in begun(study) if trial.state.is_finished()]


def begun(study) -> list:
    """The trials that have finished or go on, in their order; one that was repeated counts no more."""
    trials = study.get_trials(deepcopy=False)
    repeated = {number for trial in trials for number in trial.system_attrs.get(_REPEATS, ())}
    drawn = lambda trial: SUGGESTED in trial.user_attrs or not trial.state.is_finished()
    return [trial for trial in trials if drawn(trial) and trial.number not in repeated]


def begun_here(study, before: float = math.inf) -> int:
    """The number of trials with a number less than `before` that have finished, or go on on this host."""
    host = socket.gethostname()
    ours = lambda trial: trial.user_attrs.get(OWNER, host).split(" ")[0] == host
    found = [trial for trial in begun(study) if trial.number < before]
    return sum(trial.state.is_finished() or (trial.state.name == "RUNNING" and ours(trial)) for trial in found)


def why(trial) -> str:
    """What a failed trial told. Processes that died before they did have told nothing."""
    return trial.user_attrs[ERROR] if ERROR in trial.user_attrs else "its process was killed"


def recover(study, run_again: Callable) -> None:
    """Ends the trials of dead processes; those that have their parameters wait to be run again."""
    optuna = import_optuna()
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        if _is_abandoned(trial):
            try:
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            except (ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another process was here before
                continue
            if SUGGESTED in trial.user_attrs:
                run_again(study, trial)


def again(limit: int | None = None) -> Callable:
    """What adds a trial with the parameters of another, which it then counts for; no more than `limit` times."""
    optuna = import_optuna()

    def add(study, trial) -> None:
        repeats = [*trial.system_attrs.get(_REPEATS, ()), trial.number]
        if limit is None or len(repeats) <= limit:
            drawn = dict(params=trial.params, distributions=trial.distributions, user_attrs={SUGGESTED: True})
            waiting = dict(state=optuna.trial.TrialState.WAITING, system_attrs={_REPEATS: repeats})
            study.add_trial(optuna.trial.create_trial(**drawn, **waiting))

    return add


def _is_abandoned(trial) -> bool:
    """Whether nobody runs a trial that is marked as running."""
    if OWNER in trial.user_attrs:
        return is_dead(trial.user_attrs[OWNER])
    return time.time() - trial.datetime_start.timestamp() > _UNSIGNED_S


def sampler_of(seed: int):
    """TPE, for each trial with a seed of its own: that of its place among the trials of all processes."""
    optuna = import_optuna()

    class OfPlace(optuna.samplers.BaseSampler):
        def __init__(self):
            self._of_trial = {}  # number -> sampler; trials of several threads are drawn at once

        def before_trial(self, study, trial):
            place = sum(other.number < trial.number for other in begun(study))
            own = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
            self._of_trial[trial.number] = optuna.samplers.TPESampler(seed=own)

        def infer_relative_search_space(self, study, trial):
            return self._of_trial[trial.number].infer_relative_search_space(study, trial)

        def sample_relative(self, study, trial, search_space):
            return self._of_trial[trial.number].sample_relative(study, trial, search_space)

        def sample_independent(self, study, trial, param_name, param_distribution):
            return self._of_trial[trial.number].sample_independent(study, trial, param_name, param_distribution)

    return OfPlace()


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
