"""Cells that failed, remembered below the root of the runs: a sweep leaves them alone until it is asked to retry."""

import contextlib
import dataclasses
import json
from pathlib import Path

from experiments.harness.command_line import is_full_disk
from experiments.harness.errors import UserError
from experiments.harness.run_directory import write_text
from scripts.sweeps.processes import Broken

_FOLDER = ".failed"


@dataclasses.dataclass(frozen=True)
class Failure:
    """How a run ended: what it said, and its exit code."""

    said: str
    code: int


def remember(root: Path, run: Path, error: Exception, said: str, code: int) -> None:
    """Keeps how the run in the folder `run` below `root` ended, if it failed.

    One that was refused has not begun, one that was stopped goes on, and so does one whose disk was full. Where nothing
    can be written, nothing is kept.
    """
    if isinstance(error, UserError) and not isinstance(error, Broken):
        return
    if is_full_disk(error):
        return
    file = _file(root, run)
    with contextlib.suppress(OSError):  # a full disk: the failure, too
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"said": said, "code": code}) + "\n")


def remembered(root: Path, run: Path) -> Failure | None:
    """What is known, be it little; None where the run has not failed."""
    try:
        return Failure(**json.loads(_file(root, run).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, TypeError, ValueError):
        return Failure(f"{_file(root, run)} is damaged", Broken.exit_code)


def forget(root: Path, run: Path) -> None:
    """Of a run that is made again."""
    _file(root, run).unlink(missing_ok=True)


def _file(root: Path, run: Path) -> Path:
    return root / _FOLDER / f"{run.relative_to(root)}.json"
