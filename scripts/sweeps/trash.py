"""Runs out of sight: moved where no table looks, never deleted."""

from collections.abc import Iterable
from pathlib import Path

from experiments.harness.errors import UserError
from experiments.harness.run_directory import locked

_TRASH = ".old-runs"  # load_results reads nothing below a name with '.old-'


def move_away(runs: Iterable[tuple[Path, Path]]) -> list[Path]:
    """Moves run folders to <root>/.old-runs; returns where they are now.

    Args:
      runs: (folder, the root below which it lies).

    Raises:
      UserError: a folder that experiments.run did not make, such as a collected result, or one in use. None was moved.
    """
    found = list(runs)
    locks = [_locked(folder) for folder, _ in found]
    try:
        return [_move(folder, root) for folder, root in found]
    finally:
        for lock in locks:
            lock.close()


def _locked(folder: Path):
    """The lock of a run folder, held. Raises UserError."""
    if not all((folder / name).is_file() for name in ("config.json", "lock")) or folder.is_symlink():
        raise UserError(f"{folder} is no run folder: nothing was moved")
    try:
        return locked(folder)
    except UserError as error:
        raise UserError(f"{error}: nothing was moved") from error


def _move(folder: Path, root: Path) -> Path:
    inside = folder.relative_to(root)
    place = root / _TRASH / (inside if inside.parts else folder.resolve().name)
    place.parent.mkdir(parents=True, exist_ok=True)
    number, free = 1, place
    while free.exists():
        number, free = number + 1, place.with_name(f"{place.name}.{number}")
    return folder.rename(free)
