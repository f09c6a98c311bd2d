"""Copies finished runs into the results that are kept: python -m scripts.collect --preset quick

Checkpoints and weights are left out, and so are images of data sets (arrays of bytes among the examples), which are not
ours.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
from absl import flags

from experiments.harness import command_line
from experiments.harness.results import load_results

_RUNS = flags.DEFINE_string("runs", "runs", "folder of run folders")
_RESULTS = flags.DEFINE_string("results", "results", "folder to copy into; a result of the same run folder is replaced")
_PRESET = flags.DEFINE_list("preset", ["quick", "paper"], "presets to copy")


def _collect(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    for result in load_results([Path(_RUNS.value)]):
        if result.preset in _PRESET.value:
            place = Path(_RESULTS.value) / result.name / result.folder.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(result.folder / "result.json", place)
            _copy_examples(result.folder / "examples.npz", place / "examples.npz")
            print(place)


def _copy_examples(source: Path, target: Path) -> None:
    with np.load(source) as examples:
        kept = {name: array for name, array in examples.items() if array.dtype != np.uint8}
        if len(kept) == len(examples):
            shutil.copy(source, target)
        else:
            np.savez_compressed(target, **kept)


if __name__ == "__main__":
    sys.exit(command_line.guarded(_collect, sys.argv))
