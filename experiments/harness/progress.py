"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere, TensorBoard where asked for."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.harness.errors import UserError

_LINE_EVERY_S = 5.0  # between plain lines


class Reporter:
    """Shows loss, steps per second and time left of a run of `steps` steps. Use as a context manager.

    Args:
      console: where to write; a bar is drawn where it is a terminal.
      steps: length of the run, and `done` the steps made before this process.
      tensorboard: folder of TensorBoard event files, or None for none.

    Raises:
      UserError: TensorBoard asked for where tensorboardX is not installed.
    """

    def __init__(self, console: Console, steps: int, done: int = 0, tensorboard: Path | None = None):
        self._console, self._steps, self._done = console, steps, done
        self._tensorboard = _event_writer(tensorboard) if tensorboard else None
        self._bar = None
        if console.is_terminal:
            columns = ("{task.description}", "loss {task.fields[loss]:.4g}", "{task.fields[speed]:.1f} steps/s")
            self._bar = Progress(
                TextColumn(columns[0]),
                BarColumn(),
                MofNCompleteColumn(),
                *map(TextColumn, columns[1:]),
                TextColumn("left"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=console,
            )
            self._task = self._bar.add_task("compiling", total=steps, completed=done, loss=float("nan"), speed=0.0)

    def __enter__(self):
        self._started = self._last_line = time.monotonic()
        if self._bar:
            self._bar.start()
        elif self._done < self._steps:
            self._console.print("compiling", highlight=False)
        return self

    def __exit__(self, *_):
        if self._bar:
            self._bar.stop()
        if self._tensorboard:
            self._tensorboard.close()

    def update(self, step: int, row: Mapping[str, Any], speed: float) -> None:
        """Shows that `step` steps are done; `row` holds the metrics of the last chunk, `speed` the steps per second."""
        if self._tensorboard:
            for name, value in row.items():
                if isinstance(value, float):
                    self._tensorboard.add_scalar(name, value, step)
        if self._bar:
            self._bar.update(self._task, description="training", completed=step, loss=row["loss"], speed=speed)
            return
        now = time.monotonic()
        if "validation_loss" in row or step == self._steps or now - self._last_line > _LINE_EVERY_S:
            self._last_line = now
            left = (self._steps - step) / speed if speed else float("inf")
            validation = f"  validation {row['validation_loss']:.4g}" if "validation_loss" in row else ""
            done, pace = f"step {step}/{self._steps}  loss {row['loss']:.4g}", f"{speed:.1f} steps/s  {left:.0f} s left"
            self._console.print(f"{done}{validation}  {pace}", highlight=False, soft_wrap=True)


def _event_writer(folder: Path):
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise UserError("--tensorboard needs tensorboardX: python -m pip install '.[tensorboard]'") from error
    return SummaryWriter(str(folder))
