"""Checkpoints by orbax: the latest state, to resume from, and the best one by validation loss."""

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from experiments.harness.placement import Placement
from experiments.harness.step import TrainState


class Checkpoints:
    """One kept state and its JSON record under `folder`; orbax moves each save into place whole."""

    def __init__(self, folder: Path):
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=options)

    def save(self, step: int, state: TrainState, record: dict[str, Any]) -> None:
        """Replaces what is kept. A save of the same step by a killed run is overwritten."""
        if step in self._manager.all_steps():
            self._manager.delete(step)
        arguments = ocp.args.Composite(state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record))
        self._manager.save(step, args=arguments, force=True)

    def exists(self) -> bool:
        return self._manager.latest_step() is not None

    def restore(self, like: TrainState, placement: Placement) -> tuple[TrainState, dict[str, Any]] | None:
        """The kept state, placed, and its record; None where nothing is kept. `like` has the state's shapes."""
        step = self._manager.latest_step()
        if step is None:
            return None
        target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placement.state), like)
        arguments = ocp.args.Composite(state=ocp.args.StandardRestore(target), record=ocp.args.JsonRestore())
        kept = self._manager.restore(step, args=arguments)
        return kept["state"], kept["record"]
