"""Copies finished runs into the results that are kept: python -m scripts.collect --preset quick

Checkpoints are left out, and so is what is not ours: images of data sets (arrays of bytes among the examples), and
arrays that the experiment names as data. With --weights those of each run's first seed are released, in
RESULTS/weights/<paper>/<experiment>/<axes>: a folder for kvq_jax.load, with a card that has the numbers of this seed
and the command that computes them again.

With --unfinished it copies the runs that have begun and have no result yet, each with its last checkpoint (and its
best ones, where it keeps any) and what it has evaluated, to RESULTS/unfinished, from where they can go on, on another
machine too: copy the folder back to `runs` and give the command of the run again.
"""

import io
import shutil
import sys
from pathlib import Path

import numpy as np
from absl import flags

from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.experiment import DATA
from experiments.harness.results import Result, load_results, read, read_examples
from experiments.harness.run_directory import EVALUATION, is_put_aside, locked, write_bytes
from scripts.reports import card

_RUNS = flags.DEFINE_string("runs", "runs", "folder of run folders")
_RESULTS = flags.DEFINE_string("results", "results", "folder to copy into; a result of the same run folder is replaced")
_PRESET = flags.DEFINE_list("preset", ["quick", "paper"], "presets to copy")
_WEIGHTS = flags.DEFINE_bool("weights", False, "also release the weights of these runs, each with a card")
_UNFINISHED = flags.DEFINE_bool("unfinished", False, "copy the runs that have no result yet instead, of any preset")


def _collect(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    if _UNFINISHED.value:
        _hand_over(Path(_RUNS.value), Path(_RESULTS.value) / "unfinished")
        return
    chosen = [result for result in load_results([Path(_RUNS.value)]) if result.preset in _PRESET.value]
    if not chosen:
        raise UserError(f"no result of {' or '.join(_PRESET.value)} below {_RUNS.value}")
    copies = [_copies(result) for result in chosen]  # all are read before the first is written
    kept, released = Path(_RESULTS.value), Path(_RESULTS.value) / "weights"
    places = _different({result.folder: kept / result.name / result.folder.name for result in chosen})
    _check_kept(chosen, places)
    if _WEIGHTS.value:
        _different({result.folder: card.place_of(result, released) for result in chosen})
    for result, files in zip(chosen, copies):
        place = places[result.folder]
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_bytes(place / name, content)
        print(place)
        if _WEIGHTS.value:
            print(card.release(result, released) or f"{result.folder} keeps no weights")


def _different(places: dict[Path, Path]) -> dict[Path, Path]:
    """`places` of run folders. Raises UserError where two runs would be written to one."""
    taken: dict[Path, Path] = {}
    for run, place in places.items():
        if taken.setdefault(place, run) != run:
            raise UserError(f"{taken[place]} and {run} would both be written to {place}")
    return places


def _check_kept(chosen: list[Result], places: dict[Path, Path]) -> None:
    """Raises UserError where a result of another config would be lost."""
    for result in chosen:
        there = places[result.folder] / "result.json"
        if there.exists() and read(there)["config_hash"] != result.content["config_hash"]:
            raise UserError(f"{there} is of another config than {result.folder}: rename the run folder, or remove it")


def _copies(result: Result) -> dict[str, bytes]:
    """File name -> what is kept of it. Raises UserError where a file is missing or damaged."""
    paths = {name: result.folder / name for name in ("examples.npz", "result.json")}
    arrays = read_examples(paths["examples.npz"])
    files = {name: path.read_bytes() for name, path in paths.items()}  # the result last: it says that all is there
    kept = {name: array for name, array in arrays.items() if array.dtype != np.uint8 and not name.startswith(DATA)}
    if len(kept) < len(arrays):
        packed = io.BytesIO()
        np.savez_compressed(packed, **kept)
        files["examples.npz"] = packed.getvalue()
    return files


def _hand_over(runs: Path, place: Path) -> None:
    """Copies the runs that can go on from a checkpoint. Raises UserError where there are none, or one is at work."""
    folders = sorted({path.parents[2] for path in runs.rglob("checkpoints/latest/*") if path.name.isdigit()})
    folders = [folder for folder in folders if not is_put_aside(folder.relative_to(runs))]
    folders = [folder for folder in folders if not (folder / "result.json").exists()]
    if not folders:
        raise UserError(f"no run with a checkpoint and without a result below {runs}")
    for folder in folders:
        with locked(folder):
            target = place / folder.relative_to(runs)
            shutil.rmtree(target, ignore_errors=True)  # an earlier checkpoint
            for checkpoint in _needed(folder):
                shutil.copytree(checkpoint, target / checkpoint.relative_to(folder), copy_function=_copy)
            for part in folder.glob(f"{EVALUATION}/*.npz"):
                (target / EVALUATION).mkdir(exist_ok=True)
                shutil.copy2(part, target / EVALUATION)
            for name in ("config.json", "metrics.jsonl", "origin.json"):
                if (folder / name).exists():
                    shutil.copy2(folder / name, target / name)
        print(target)


def _needed(folder: Path) -> list[Path]:
    """The checkpoints that a run goes on from: the last of the latest, and the best where it keeps any."""
    latest, best = (
        [path for path in (folder / "checkpoints" / kind).glob("*") if path.name.isdigit()]
        for kind in ("latest", "best")
    )
    # A run that was killed between its best state and the latest names the best one before.
    return [max(latest, key=lambda path: int(path.name)), *best]


def _copy(source: str, place: str) -> None:
    """As shutil.copy2. Orbax's mark of a whole checkpoint names a folder of this machine: it is there, but empty."""
    if Path(source).name == "commit_success.txt":
        Path(place).touch()
    else:
        shutil.copyfile(source, place)
    shutil.copystat(source, place)


if __name__ == "__main__":
    sys.exit(command_line.guarded(_collect, sys.argv))
