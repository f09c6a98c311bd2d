"""The folder of one run: config.json, origin.json, metrics.jsonl, checkpoints/, evaluation/, examples.npz, result.json.

A folder belongs to one config. Files are written under a temporary name and then moved, so a run that is killed leaves
either the old file or the new one.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from ml_collections import ConfigDict

from experiments.harness.errors import Diverged, UserError
from kvq_jax.files import UNFINISHED, moved_into

AFRESH = "--restart begins afresh and keeps the old folder"
_METRICS, _ERROR, _ORIGIN = "metrics.jsonl", "error.txt", "origin.json"
_OLD = ".old-"
EVALUATION = "evaluation"  # the finished parts of one that goes on
_WORK = ("checkpoints/*/*", f"{EVALUATION}/*")  # what a process leaves that did some
_FOUND = "found"  # in origin.json: what was there when a process began
_LOCK = {"lock"}
_OF_A_RUN = {"config.json", "result.json", "checkpoints", _METRICS, EVALUATION, "examples.npz", _ERROR, _ORIGIN}

_NAME_LENGTH = 100  # letters of overrides in the name of a run folder
_UNFIT = re.compile(r"[^\w.=+-]+", re.ASCII)  # letters that a folder name does without


def config_json(config: ConfigDict) -> str:
    """The canonical JSON of a config: sorted keys, two-space indent."""
    return json.dumps(json.loads(config.to_json()), sort_keys=True, indent=2)


def config_hash(config: ConfigDict) -> str:
    """Sixteen hex digits that identify a config."""
    return digest_of(config_json(config).encode())


def default_path(root: Path, config: ConfigDict, overrides: Mapping[str, Any]) -> Path:
    """root/<paper>/<experiment>/<axes>-<overrides>-<hash>, the default run folder of a config.

    The overrides, config key -> value, are those that `config` has: 'learning_rate=0.001' for the key
    'optimizer.learning_rate', as many of them as a name has room for.
    """
    parts = [str(value) for value in config.axes.to_dict().values()]
    room = _NAME_LENGTH
    for key, value in sorted(overrides.items()):
        part = f"{key.rpartition('.')[2]}={_UNFIT.sub('_', str(value)).strip('_')}"
        room -= len(part) + 1
        if room < 0:
            break
        parts.append(part)
    return root / config.name / "-".join([*parts, config_hash(config)[:8]])


class RunDirectory:
    """An opened run folder, locked against a second process until this one ends.

    Raises (on opening):
      UserError: the folder cannot be written, belongs to another config, or another process is running in it.
    """

    def __init__(self, path: Path, config: ConfigDict, restart: bool = False):
        self.path = path
        self._begun = False  # whether there was a run before this process
        self._aside = None  # where --restart put it
        try:
            if restart and path.exists():
                check_ownership(path, None)
                with locked(path):  # a run that goes on keeps its folder
                    self._aside = path.rename(_unused(path))
            check_ownership(path, config)
            self._begun = (path / "config.json").exists()
            path.mkdir(parents=True, exist_ok=True)
            self._lock = locked(path)
            _tidy(path)
            write_text(path / "config.json", config_json(config))
        except OSError as error:
            raise UserError(f"cannot write to the run folder {path}: {error.strerror}") from error

    @contextlib.contextmanager
    def errors_kept(self) -> Iterator[None]:
        """Within it, an error that nobody foresaw leaves its traceback in error.txt, and says so in its notes.

        Bad input that shows only here, as in a measurement, removes the folder that this process made, if no work is
        in it yet, and a run that --restart put aside comes back.
        """
        try:
            yield
        except UserError:
            if not self._begun and not any((self.path / name).exists() for name in (_METRICS, "result.json")):
                self._lock.close()
                with contextlib.suppress(OSError):  # a link to a folder, or one that others use: what was said counts
                    shutil.rmtree(self.path)
                    if self._aside:
                        self._aside.rename(self.path)
            raise
        except Diverged:
            raise
        except Exception as error:
            with contextlib.suppress(OSError):  # a full disk
                write_text(self.path / _ERROR, traceback.format_exc())
                error.add_note(f"the traceback is in {self.path / _ERROR}")
            raise

    def origins(self, origin: Mapping[str, Any], facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The provenance of the processes that worked on this run, and `origin`, of this one: in order, each once.

        A process that left no new state and no new part of an evaluation did no work. Raises UserError where a process
        worked with other `facts`: on other data.
        """
        work = sorted(str(left.relative_to(self.path)) for kind in _WORK for left in self.path.glob(kind))
        now = {_FOUND: work, "facts": facts, **origin}
        earlier = self._origins(now) if work else []
        if earlier and earlier[-1][_FOUND] == work:
            earlier.pop()
        if any(each["facts"] != facts for each in earlier):
            raise UserError(f"{self.path} was begun with other data, see its {_ORIGIN}: {AFRESH}")
        write_text(self.path / _ORIGIN, "".join(f"{json.dumps(each)}\n" for each in (*earlier, now)))
        every = [{key: each[key] for key in origin} for each in (*earlier, now)]
        return [each for number, each in enumerate(every) if each not in every[:number]]

    def _origins(self, like: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The lines of origin.json, none where one of them is not `like` what is expected."""
        try:
            lines = [{_FOUND: [], **json.loads(line)} for line in (self.path / _ORIGIN).read_bytes().splitlines()]
        except (FileNotFoundError, ValueError, TypeError):
            return []
        return lines if all(_is_like(line, like) for line in lines) else []

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Adds one line to metrics.jsonl. A line holds no times, so equal runs write equal files."""
        with (self.path / _METRICS).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def drop_metrics_after(self, step: int) -> None:
        """Removes the lines that a killed run wrote after the checkpoint at `step`, from which it resumes.

        Lines that cannot be read go too.
        """
        file = self.path / _METRICS
        if file.exists():
            lines = file.read_bytes().splitlines(keepends=True)
            write_bytes(file, b"".join(line for line in lines if _step_of(line) <= step))

    def metrics_digest(self) -> str:
        """Sixteen hex digits of metrics.jsonl, which a checkpoint remembers."""
        file = self.path / _METRICS
        return digest_of(file.read_bytes() if file.exists() else b"")

    def write_examples(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes examples.npz: the arrays that the figures draw."""
        with moved_into(self.path / "examples.npz") as file:
            np.savez_compressed(file, **arrays)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Writes result.json, the mark of a finished run."""
        write_text(self.path / "result.json", json.dumps(result, indent=2, allow_nan=False) + "\n")


def check_ownership(path: Path, config: ConfigDict | None) -> None:
    """Raises UserError where `path` holds something other than a run of `config` (None: of any config)."""
    try:
        names = {entry.name for entry in path.iterdir() if not _is_unfinished(entry)} if path.exists() else set()
        owner = (path / "config.json").read_bytes() if "config.json" in names else b""
    except OSError as error:
        raise UserError(f"cannot read the run folder {path}: {error.strerror}") from error
    if not names <= _LOCK and not names & _OF_A_RUN:
        raise UserError(f"{path} is not empty and holds no run; choose another --workdir")
    if config is None or names <= _LOCK:
        return
    try:
        owner = json.loads(owner)
    except ValueError as error:
        raise UserError(f"{path / 'config.json'} is missing or damaged: {AFRESH}") from error
    if owner != json.loads(config_json(config)):
        raise UserError(f"{path} belongs to another config; choose another --workdir, or move it away with --restart")


def tidy(path: Path) -> bool:
    """Removes what a process that was ended left unfinished in a run folder, and its error.txt.

    False where another one is at work in it.
    """
    try:
        with locked(path):
            _tidy(path)
    except (OSError, UserError):
        return False
    return True


def _tidy(path: Path) -> None:
    for left in (*filter(_is_unfinished, path.iterdir()), path / _ERROR):
        left.unlink(missing_ok=True)


def locked(path: Path) -> IO[str]:
    """The lock of a run folder, held until it is closed.

    Raises UserError where another process holds it, and where the file system has no locks.
    """
    lock = (path / "lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = os.path.samestat(os.fstat(lock.fileno()), (path / "lock").stat())  # the folder was not moved meanwhile
    except (BlockingIOError, FileNotFoundError):
        ours = False
    except OSError as error:
        lock.close()
        told = f"{path} cannot be locked ({error.strerror}): take a folder of a file system that has locks"
        raise UserError(told) from error
    if not ours:
        lock.close()
        raise UserError(f"another process is running in {path}")
    return lock


def _is_like(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether what was read has the keys of a mapping, and mappings where it has them."""
    return found.keys() == expected.keys() and all(
        isinstance(found[key], Mapping) == isinstance(value, Mapping) for key, value in expected.items()
    )


def _is_unfinished(path: Path) -> bool:
    """Whether a file is one that `moved_into` was writing."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)


def _step_of(line: bytes) -> float:
    """The step of a line of metrics.jsonl, infinite where it is cut short or damaged."""
    try:
        return float(json.loads(line)["step"]) if line.endswith(b"\n") else math.inf
    except (ValueError, TypeError, KeyError):
        return math.inf


def digest_of(content: bytes) -> str:
    """Sixteen hex digits that identify some bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one move."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces `path` by `content` in one move."""
    with moved_into(path) as file:
        file.write(content)


def is_put_aside(path: Path) -> bool:
    """Whether --restart renamed a folder of `path`."""
    return any(_OLD in part for part in path.parts)


def _unused(path: Path) -> Path:
    """path.old-1, path.old-2, ...: the first that does not exist."""
    number = 1
    while (candidate := path.with_name(f"{path.name}{_OLD}{number}")).exists():
        number += 1
    return candidate
