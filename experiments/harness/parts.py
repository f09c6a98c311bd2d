"""The finished parts of an evaluation, in RUN/evaluation: one of hours goes on where its process was ended."""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness.results import UNREADABLE
from experiments.harness.run_directory import EVALUATION
from kvq_jax.files import moved_into

Values = dict[str, np.ndarray]  # name -> [S, tasks]
_METRICS = "metrics/"


class Found(NamedTuple):
    """What a part gave, and the seconds it took."""

    values: Values
    wall_time_s: float


class Parts:
    """The parts that an earlier process left in a run folder, and those to come.

    Left out is one that is damaged, one with other metrics, as older code gave, and one of an evaluation in another
    number of parts: of another device, say.

    Args:
      run: the run folder.
      count: of the parts of a phase.
      metrics: their names.
      writes: whether this process keeps what it computes.
    """

    def __init__(self, run: Path, count: int, metrics: Iterable[str], writes: bool):
        self._folder, self._count, self._writes, self.found = run / EVALUATION, count, writes, {}
        for path in self._folder.glob(f"*-of-{count}.npz"):
            with contextlib.suppress(*UNREADABLE), np.load(path) as file:
                values = {name.removeprefix(_METRICS): file[name] for name in file if name.startswith(_METRICS)}
                if values.keys() == set(metrics):
                    self.found[path.stem] = Found(values, float(file["wall_time_s"]))

    @property
    def wall_time_s(self) -> float:
        """The seconds that the parts took which were found."""
        return sum(part.wall_time_s for part in self.found.values())

    def part(self, phase: str, number: int, compute: Callable[[str, int], Values]) -> Values:
        """The part of this number, from 0, of a phase: the one that was found, else compute(phase, number)."""
        if (name := f"{phase}-{number}-of-{self._count}") in self.found:
            return self.found[name].values
        started = time.monotonic()
        values = compute(phase, number)
        if self._writes:
            self._folder.mkdir(exist_ok=True)
            with moved_into(self._folder / f"{name}.npz") as file:
                arrays = {_METRICS + metric: array for metric, array in values.items()}
                np.savez(file, wall_time_s=time.monotonic() - started, **arrays)
        return values


def drop_parts(run: Path) -> None:
    """Removes all parts: the state that they are of goes on, or the result is there."""
    shutil.rmtree(run / EVALUATION, ignore_errors=True)


def joined(parts: Sequence[Values]) -> Values:
    """The values of all tasks. One part alone may have arrays of any shape."""
    first, *others = parts
    return {name: np.concatenate([own[name] for own in parts], 1) for name in first} if others else first
