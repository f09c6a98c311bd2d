"""The folder of one run: config.json, metrics.jsonl, checkpoints/, examples.npz, result.json.

A folder belongs to one config. Files are written under a temporary name and then moved, so a run that is killed leaves
either the old file or the new one.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.harness.errors import UserError

_NAME_LENGTH = 100  # letters of overrides in the name of a run folder
_UNFIT = re.compile(r"[^\w.=+-]+", re.ASCII)  # letters that a folder name does without


def config_json(config: ConfigDict) -> str:
    """The canonical JSON of a config: sorted keys, two-space indent."""
    return json.dumps(json.loads(config.to_json()), sort_keys=True, indent=2)


def config_hash(config: ConfigDict) -> str:
    """Sixteen hex digits that identify a config."""
    return hashlib.sha256(config_json(config).encode()).hexdigest()[:16]


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
        if restart and path.exists():
            check_ownership(path, None)
            path.rename(_unused(path))
        check_ownership(path, config)
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / "lock").open("w")
        except OSError as error:
            raise UserError(f"cannot write to the run folder {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another process is running in {path}") from error
        write_text(path / "config.json", config_json(config))

    def discard(self) -> None:
        """Removes the folder of a run that could not begin."""
        self._lock.close()
        shutil.rmtree(self.path)

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Adds one line to metrics.jsonl. A line holds no times, so equal runs write equal files."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def drop_metrics_after(self, step: int) -> None:
        """Removes the lines that a killed run wrote after the checkpoint at `step`, from which it resumes."""
        file = self.path / "metrics.jsonl"
        if file.exists():
            lines = file.read_text().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]  # the last line of a killed run may be cut short
            write_text(file, "".join(line for line in whole if json.loads(line)["step"] <= step))

    def write_examples(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes examples.npz: the arrays that the figures draw."""
        with moved_into(self.path / "examples.npz") as file:
            np.savez_compressed(file, **arrays)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Writes result.json, the mark of a finished run."""
        write_text(self.path / "result.json", json.dumps(result, indent=2, allow_nan=False) + "\n")


def check_ownership(path: Path, config: ConfigDict | None) -> None:
    """Raises UserError where `path` holds something other than a run of `config` (None: of any config)."""
    if not path.exists():
        return
    try:
        occupied = any(path.iterdir())
        owner = json.loads((path / "config.json").read_text()) if (path / "config.json").exists() else None
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"cannot read the run folder {path}: {error}") from error
    if owner is None and occupied and [p.name for p in path.iterdir()] != ["lock"]:
        raise UserError(f"{path} is not empty and holds no run; choose another --workdir")
    if config is not None and owner is not None and owner != json.loads(config_json(config)):
        raise UserError(f"{path} belongs to another config; choose another --workdir, or move it away with --restart")


def write_text(path: Path, text: str) -> None:
    """Replaces `path` by `text` in one move."""
    with moved_into(path) as file:
        file.write(text.encode())


class moved_into:
    """A binary file to write to, which appears as `path` once it is complete and on the disk."""

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self):
        handle, self._name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        self._file = os.fdopen(handle, "wb")
        return self._file

    def __exit__(self, kind, value, trace):
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            if kind is None:
                os.chmod(self._name, 0o644)
                os.replace(self._name, self._path)
        finally:  # a full disk, too, leaves nothing behind
            Path(self._name).unlink(missing_ok=True)


def _unused(path: Path) -> Path:
    """path.old-1, path.old-2, ...: the first that does not exist."""
    number = 1
    while (candidate := path.with_name(f"{path.name}.old-{number}")).exists():
        number += 1
    return candidate
