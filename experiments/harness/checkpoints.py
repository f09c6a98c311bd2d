"""Checkpoints by orbax: the latest states, to resume from, and the best ones by validation loss, to end with."""

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from experiments.harness import ending
from experiments.harness.errors import Stopped, UserError, first_line
from experiments.harness.placement import Placement, on_host
from experiments.harness.run_directory import AFRESH
from experiments.harness.step import TrainState

_DIGEST = "digest"
_LONGEST = 300  # characters of another library's message


@dataclasses.dataclass
class Record:
    """What a checkpoint remembers beside the state."""

    step: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    validation_losses: list[tuple[int, float]] = dataclasses.field(default_factory=list)  # (step, mean over seeds)
    wall_time_s: float = 0.0  # over all processes that worked on the run
    steps_per_second: float = 0.0  # of the last process, compilation left out
    metrics_digest: str = ""  # of metrics.jsonl up to the step


class Checkpoints:
    """The last two states and their records under `folder`; orbax moves each save into place whole.

    A digest of the state and its record is kept with them: damage, if only of a bit, is found when they are read.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        with _hushed():  # a checkpoint that a full disk cut short is passed over by `restore`, which says so
            self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, step: int, state: TrainState, record: Record) -> None:
        """Adds a checkpoint and lets the oldest go. A save of the same step by a killed run is overwritten.

        Raises OSError where the disk is full.
        """
        fields = dataclasses.asdict(record) | {_DIGEST: _digest(state, record)}
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(fields))
        try:
            with ending.undisturbed(), _hushed():
                if step in self._manager.all_steps():
                    self._manager.delete(step)
                self._manager.save(step, args=arguments, force=True)
        except Exception as error:
            raise _of_the_system(error, self._folder) from error

    def exists(self) -> bool:
        return self._manager.latest_step() is not None

    def restore(
        self, like: TrainState, placement: Placement, say: Callable[[str], object], only: int | None = None
    ) -> tuple[TrainState, Record] | None:
        """The latest state that is whole, placed, and its record; None where nothing was kept.

        Args:
          like: has the state's shapes.
          placement: of the state.
          say: is told of each checkpoint that is passed over.
          only: the one step that will do.

        Raises:
          UserError: no checkpoint is whole, or that of the step `only` is not there.
        """
        target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement.state), like)
        steps = sorted(self._manager.all_steps(), reverse=True) if only is None else [only]
        for step in steps:
            try:
                with ending.undisturbed(), _hushed():
                    return self._whole(step, target)
            except Exception as error:  # a damaged file can end in any error of orbax, tensorstore, JSON or zstd
                say(f"note: the checkpoint {self._folder / str(step)} is damaged: {first_line(error)[:_LONGEST]}")
        if steps:
            raise UserError(f"no checkpoint in {self._folder} can be read: {AFRESH}")
        return None

    def _whole(self, step: int, target: TrainState) -> tuple[TrainState, Record]:
        """The state and record of a step. Raises ValueError where they are not what was saved, and orbax's errors."""
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(target), record=ocp.args.JsonRestore())
        kept = self._manager.restore(step, args=arguments)
        fields = dict(kept["record"])
        expected = fields.pop(_DIGEST, None)  # older checkpoints have none
        record = Record(**fields)
        if expected not in (None, _digest(kept["state"], record)) or record.step != step:
            raise ValueError("its numbers are not those that were saved")
        return kept["state"], record


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keeps orbax from telling at length what it raises too; after an error for good, since its tasks go on telling."""
    hooks = sys.unraisablehook, sys.excepthook
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    sys.unraisablehook = lambda given: hooks[0](given) if isinstance(given.exc_value, Stopped) else None
    sys.excepthook = lambda *given: None
    for logger in loggers:
        logger.disabled = True
    yield
    sys.unraisablehook, sys.excepthook = hooks
    for logger in loggers:
        logger.disabled = False


def _of_the_system(error: Exception, folder: Path) -> Exception:
    """The OSError behind an error of tensorstore, or the error itself."""
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return OSError(int(code[1]), os.strerror(int(code[1])), str(folder)) if code else error


def digests(folder: Path) -> dict[int, str]:
    """Step -> a digest of the state and the losses of each checkpoint under `folder`, which are read whole."""
    manager = ocp.CheckpointManager(folder.absolute(), options=ocp.CheckpointManagerOptions())
    arguments = ocp.args.Composite(state=ocp.args.StandardRestore(), record=ocp.args.JsonRestore())
    found = {}
    for step in manager.all_steps():
        kept = manager.restore(step, args=arguments)
        times = {"wall_time_s": 0.0, "steps_per_second": 0.0}
        fields = {name: value for name, value in kept["record"].items() if name != _DIGEST}
        found[step] = _digest(kept["state"], Record(**fields | times))
    return found


def _digest(state: TrainState, record: Record) -> str:
    """Sixteen hex digits of every bit of a state and of its record."""
    digest = hashlib.sha256(json.dumps(dataclasses.asdict(record), sort_keys=True).encode())
    for path, leaf in jax.tree.leaves_with_path(state):
        array = on_host(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
