"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere, TensorBoard where asked for."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from experiments.harness.errors import UserError

_LINE_EVERY_S = 5.0  # between plain lines


class Reporter:
    """Shows loss, steps per second and time left of a run of `steps` steps. Use as a context manager.

    Nothing is shown of what is not known yet: no loss while the program is compiled, no validation loss before the
    first, no time left without a speed.

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
        self._bar, self._validation = None, ""
        if console.is_terminal:
            columns = "{task.description}", "{task.fields[told]}"
            self._bar = Progress(
                TextColumn(columns[0]), BarColumn(), MofNCompleteColumn(), TextColumn(columns[1]), console=console
            )
            self._task = self._bar.add_task("compiling", total=steps, completed=done, told="")

    def __enter__(self):
        self._last_line = time.monotonic()
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

    def doing(self, what: str) -> None:
        """Shows what goes on between two updates, such as 'validating'."""
        if self._bar:
            self._bar.update(self._task, description=what)

    def update(self, step: int, row: Mapping[str, Any], speed: float) -> None:
        """Shows that `step` steps are done; `row` holds the metrics of the last chunk, `speed` the steps per second."""
        if self._tensorboard:
            for name, value in row.items():
                if isinstance(value, float):
                    self._tensorboard.add_scalar(name, value, step)
        if "validation_loss" in row:
            self._validation = f"  validation {row['validation_loss']:.4g}"
        pace = f"  {speed:.3g} steps/s" if speed else ""
        left = f"  {duration((self._steps - step) / speed)} left" if speed and step < self._steps else ""
        told = f"loss {row['loss']:.4g}{self._validation}{pace}{left}"
        if self._bar:
            self._bar.update(self._task, description="training", completed=step, told=told)
            return
        now = time.monotonic()
        if "validation_loss" in row or step == self._steps or now - self._last_line > _LINE_EVERY_S:
            self._last_line = now
            self._console.print(f"step {step}/{self._steps}  {told}", highlight=False, soft_wrap=True)


@contextlib.contextmanager
def phase(console: Console, what: str, parts: int = 1) -> Iterator[Callable[[], None]]:
    """Shows that `what` goes on, such as 'evaluating': with the time that has passed on a terminal, else one line.

    Of several parts it shows how many are done, too, and the time left. It yields what is called when one is done.
    """
    begun, done = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            bar = stack.enter_context(Progress(*columns, console=console, transient=True))
            tell = functools.partial(bar.update, bar.add_task(what, total=None))
        else:
            tell = lambda description: console.print(description, highlight=False)
            tell(what)

        def one_done():
            nonlocal done
            done += 1
            if done < parts:
                left = duration((time.monotonic() - begun) / done * (parts - done))
                tell(description=f"{what} {done}/{parts}  {left} left")

        yield one_done


def duration(seconds: float) -> str:
    """'8 s', '2 min 5 s' or '3 h 20 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _event_writer(folder: Path):
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise UserError("--tensorboard needs tensorboardX: python -m pip install '.[tensorboard]'") from error
    return SummaryWriter(str(folder))
