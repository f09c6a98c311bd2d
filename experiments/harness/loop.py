"""The training loop: chunks of compiled steps; between them validation, logging and checkpoints."""

import dataclasses
import functools
import math
import time
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np

from experiments.harness.checkpoints import Checkpoints, Record
from experiments.harness.checks import check_memory
from experiments.harness.errors import Diverged
from experiments.harness.experiment import PyTree
from experiments.harness.parts import drop_parts
from experiments.harness.placement import Placement, wait_for_all
from experiments.harness.progress import Reporter
from experiments.harness.run_directory import RunDirectory
from experiments.harness.step import Program, TrainState
from kvq_jax.domains import Count, Natural, Seed, Within


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """The config's `train` section."""

    steps: Count
    batch_size: Annotated[int, Within(1, 2**31 - 1)]  # tasks per step and seed; what a shape of JAX takes
    seed: Seed  # the first seed
    seeds: Count  # seeds trained at once: seed, seed + 1, ...
    micro_batches: Count  # equal parts of a batch whose gradients are added up, one in memory at a time; 1: the whole
    size_classes: Natural  # shapes for the sizes that batches share; 0: no shared sizes
    log_every: Count  # steps of one compiled chunk, and of one line of metrics.jsonl
    validate_every: Count
    checkpoint_every: Count
    placement: str  # single, in_turn, data or seeds
    select: Literal["last", "best"]  # the state that is evaluated at the end: last or best (by validation loss)

    def __post_init__(self):
        if self.batch_size % self.micro_batches:
            raise ValueError(f"batch_size={self.batch_size} is not a multiple of micro_batches={self.micro_batches}")
        for name in ("steps", "validate_every", "checkpoint_every"):
            if getattr(self, name) % self.log_every:
                raise ValueError(f"{name}={getattr(self, name)} is not a multiple of log_every={self.log_every}")
        if self.seed + self.seeds > 2**32:
            raise ValueError(f"the last of {self.seeds} seeds from {self.seed} on is beyond 32 bits")

    @property
    def all_seeds(self) -> np.ndarray:
        return np.arange(self.seed, self.seed + self.seeds, dtype=np.uint32)


def train(
    program: Program,
    data: dict[str, PyTree],
    settings: TrainSettings,
    placement: Placement,
    checkpoints: Path,
    directory: RunDirectory | None,
    reporter_options: dict,
) -> tuple[TrainState, Record]:
    """Trains from the latest checkpoint, or from the start, to the end.

    Every process of a multi-host run reads and writes its part of the `checkpoints`; only the process with the
    `directory` logs.

    Returns:
      The state that `settings.select` names, and the record of the run.

    Raises:
      Diverged: a loss is not finite. The checkpoint before it is kept.
      UserError: there are checkpoints, but none that is whole; or a step takes more memory than there is.
    """
    latest = Checkpoints(checkpoints / "latest")
    best = Checkpoints(checkpoints / "best") if settings.select == "best" else None
    say = functools.partial(reporter_options["console"].print, soft_wrap=True, highlight=False)
    like = jax.eval_shape(program.init, settings.all_seeds)
    state, record = latest.restore(like, placement, say) or (program.init(settings.all_seeds), Record())
    step = record.step
    if directory:
        directory.drop_metrics_after(step)
        if record.metrics_digest not in ("", directory.metrics_digest()):
            say(f"note: {directory.path / 'metrics.jsonl'} was lost or changed up to step {step}; the run is not")
    clock = _Clock(record.wall_time_s)
    with Reporter(steps=settings.steps, done=step, **reporter_options) as reporter:
        if step < settings.steps:
            if directory:
                drop_parts(directory.path)  # of another state
            chunk = program.chunk.lower(state, data["train"]).compile()
            check_memory(chunk, "config.train: a step")
            wait_for_all("compiled")
            clock.begin()
        while step < settings.steps:
            state, *found = chunk(state, data["train"])
            metrics, finite = jax.device_get(found)
            _check_finite(metrics, step, latest)
            record.step = step = step + settings.log_every
            if not finite.all():
                raise Diverged(_divergence(f"state of seed number {np.argmin(finite)}", step, latest))
            clock.steps += settings.log_every
            saves = step % settings.checkpoint_every == 0 or step == settings.steps
            row = {"step": step} | {name: float(np.mean(values)) for name, values in metrics.items()}
            row["seed_losses"] = [float(loss) for loss in metrics["loss"].mean(0)]
            if step % settings.validate_every == 0 or step == settings.steps:
                reporter.doing("validating")
                loss = float(np.mean(program.validate(state, data["validation"])))
                if not math.isfinite(loss):
                    raise Diverged(_divergence("validation loss", step, latest))
                row["validation_loss"] = loss
                record.validation_losses.append((step, loss))
                if record.best_loss is None or loss < record.best_loss:
                    record.best_loss, record.best_step = loss, step
                    if best:
                        best.save(step, state, record)
                        saves = True  # the latest one too: its record never names a best one that was let go
            record.wall_time_s, record.steps_per_second = clock.total, clock.speed or record.steps_per_second
            if directory:
                directory.append_metrics(row)
                record.metrics_digest = directory.metrics_digest() if saves else ""
            if saves:
                latest.save(step, state, record)
            reporter.update(step, row, clock.speed)
    if best and record.best_step != step:
        state, _ = best.restore(like, placement, say, only=record.best_step)
    return state, record


class _Clock:
    """Time spent on a run, and its speed since it began after the compilation."""

    def __init__(self, before: float):
        self._before, self._start, self.steps = before, time.monotonic(), 0

    def begin(self) -> None:
        self._begun = time.monotonic()

    @property
    def total(self) -> float:
        return self._before + time.monotonic() - self._start

    @property
    def speed(self) -> float:
        return self.steps / (time.monotonic() - self._begun) if self.steps else 0.0


def _check_finite(metrics: dict[str, np.ndarray], step: int, latest: Checkpoints) -> None:
    """The loss of every step and seed, and its gradient, which the state already has in it."""
    for name in ("loss", "gradient_norm"):
        bad = np.argwhere(~np.isfinite(metrics[name]))
        if len(bad):
            what = f"{name.replace('_', ' ')} of seed number {bad[0][1]}"
            raise Diverged(_divergence(what, step + int(bad[0][0]) + 1, latest))


def _divergence(what: str, step: int, latest: Checkpoints) -> str:
    kept = "the checkpoint before it is kept" if latest.exists() else "there was no checkpoint yet"
    return f"the {what} is not finite at step {step}; {kept}"
