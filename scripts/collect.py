"""Copies finished runs, without their checkpoints, into the results that are kept: python -m scripts.collect --preset quick"""
import shutil
import sys
from pathlib import Path

from absl import flags

from experiments.harness import command_line
from experiments.harness.results import load_results

_RUNS = flags.DEFINE_string("runs", "runs", "folder of run folders")
_RESULTS = flags.DEFINE_string("results", "results", "folder to copy into; a result of the same run folder is replaced")
_PRESET = flags.DEFINE_list("preset", ["quick", "paper"], "presets to copy")

_KEPT = ("result.json", "examples.npz")


def main(argv: list[str]) -> int:
    """Runs the command line `argv` and returns its exit code."""
    return command_line.guarded(_collect, argv)


def _collect(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    for result in load_results([Path(_RUNS.value)]):
        if result.preset in _PRESET.value:
            place = Path(_RESULTS.value) / result.name / result.folder.name
            place.mkdir(parents=True, exist_ok=True)
            for name in _KEPT:
                shutil.copy(result.folder / name, place / name)
            print(place)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
