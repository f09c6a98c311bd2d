"""Copies finished runs into the results that are kept: python -m scripts.collect --preset quick

Checkpoints are left out, and so is what is not ours: images of data sets (arrays of bytes among the examples), and
arrays that the experiment names as data. With --weights those of each run's first seed are released, in
RESULTS/weights/<paper>/<experiment>/<axes>: a folder for kvq_jax.load, with a card that has the numbers of this seed
and the command that computes them again.
"""

import io
import sys
from pathlib import Path

import numpy as np
from absl import flags

from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.experiment import DATA
from experiments.harness.results import Result, load_results, read_examples
from experiments.harness.run_directory import write_bytes
from scripts.reports import card

_RUNS = flags.DEFINE_string("runs", "runs", "folder of run folders")
_RESULTS = flags.DEFINE_string("results", "results", "folder to copy into; a result of the same run folder is replaced")
_PRESET = flags.DEFINE_list("preset", ["quick", "paper"], "presets to copy")
_WEIGHTS = flags.DEFINE_bool("weights", False, "also release the weights of these runs, each with a card")


def _collect(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    chosen = [result for result in load_results([Path(_RUNS.value)]) if result.preset in _PRESET.value]
    if not chosen:
        raise UserError(f"no result of {' or '.join(_PRESET.value)} below {_RUNS.value}")
    copies = [_copies(result) for result in chosen]  # all are read before the first is written
    for result, files in zip(chosen, copies):
        place = Path(_RESULTS.value) / result.name / result.folder.name
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_bytes(place / name, content)
        print(place)
        if _WEIGHTS.value:
            print(card.release(result, Path(_RESULTS.value) / "weights") or f"{result.folder} keeps no weights")


def _copies(result: Result) -> dict[str, bytes]:
    """File name -> what is kept of it. Raises UserError where a file is missing or damaged."""
    paths = {name: result.folder / name for name in ("result.json", "examples.npz")}
    arrays = read_examples(paths["examples.npz"])
    files = {name: path.read_bytes() for name, path in paths.items()}
    kept = {name: array for name, array in arrays.items() if array.dtype != np.uint8 and not name.startswith(DATA)}
    if len(kept) < len(arrays):
        packed = io.BytesIO()
        np.savez_compressed(packed, **kept)
        files["examples.npz"] = packed.getvalue()
    return files


if __name__ == "__main__":
    sys.exit(command_line.guarded(_collect, sys.argv))
