"""Results as data: what result.json holds, and how tables and figures read a folder of them."""

import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import shlex
import statistics
import sys
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.errors import UserError, first_line
from experiments.harness.run_directory import is_put_aside

# What reading a damaged .npz raises.
UNREADABLE = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError)
PRESETS = ("paper", "quick", "tiny")  # the most serious first
_OF_ONE_RUN = {"config.train.seeds", "config.train.placement"}  # how often it is made, and where
_DIGEST = "digest"
_KEYS = {"name": str, "axes": dict, "config": dict, "config_hash": str, "metrics": dict}


@dataclasses.dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
      folder: where it lies.
      content: its result.json.
      source: index, among the folders that were searched, of the one it lies below.
    """

    folder: Path
    content: dict[str, Any]
    source: int = 0

    @property
    def name(self) -> str:
        """'<paper>/<experiment>'."""
        return self.content["name"]

    @property
    def axes(self) -> dict[str, str]:
        """The axes of its cell and their values."""
        return self.content["axes"]

    @property
    def preset(self) -> str:
        return self.axes["preset"]

    @property
    def overrides(self) -> dict[str, Any]:
        """Config key -> value given on the command line, such as {'train.steps': 20}; older results tell none."""
        return self.content.get("overrides", {})

    @property
    def command(self) -> str:
        """The command line that makes it, without what it does not depend on, such as where the data lie."""
        axes = ",".join(f"{axis}={value}" for axis, value in self.axes.items())
        changed = [shlex.quote(f"--config.{key}={value}") for key, value in self.overrides.items()]
        return " ".join(["python -m experiments.run --config", f"configs/{self.name}.py:{axes}", *changed])

    @property
    def code(self) -> str | None:
        """The digest of the code that made it (provenance.code_digest); None for older results."""
        return self.content.get("code")

    @property
    def device(self) -> str:
        """What it was computed on: '1 x cpu', or '1 x cpu, begun on 1 x NVIDIA H100' where a run went on elsewhere."""
        device = self.content["device"]
        first = self.content.get("begun_with", {}).get("device", device)  # older ones have none
        others = {other["device"] for other in self.content.get("went_on_with", ())} - {device, first}
        begun = f", begun on {first}" if first != device else ""
        return device + begun + "".join(f", also on {other}" for other in sorted(others))

    @property
    def config(self) -> dict[str, Any]:
        return self.content["config"]

    @functools.cached_property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Name of a metric to its mean, median, n, means per seed, and `run`, this result.

        `sem` is the standard error over seeds and tasks together, `sem_of_tasks` what the choice of tasks leaves.
        """
        return {
            name: {**summary, "sem": _standard_error(summary), "sem_of_tasks": summary["sem"], "run": self}
            for name, summary in self.content["metrics"].items()
        }

    @property
    def steps(self) -> str:
        """'2000', or '900 of 2000' where the state of the best validation loss is evaluated."""
        steps, best = self.content["steps"], self.content["best_step"]
        return str(steps) if best is None or self.config["train"]["select"] != "best" else f"{best} of {steps}"

    @property
    def validation(self) -> float:
        """The validation loss of the state that is evaluated; infinite where there is none, or it is not finite."""
        losses = [loss for _, loss in self.content["validation_losses"]]
        judged = losses if self.config["train"]["select"] == "best" else losses[-1:]
        return min(filter(math.isfinite, judged), default=math.inf)

    @functools.cached_property
    def examples(self) -> dict[str, np.ndarray]:
        """The arrays of examples.npz. Raises UserError where the file is missing or damaged."""
        return read_examples(self.folder / "examples.npz")


def _standard_error(summary: dict[str, Any]) -> float | None:
    """That of a mean over seeds and tasks together; of one seed, that over its tasks. None for no finite number.

    Trainings are drawn as tasks are: to sem^2, of the tasks' averages, comes 1/S of the variance of S seeds.
    """
    sem, seeds = summary["sem"], summary.get("seeds", ())
    if sem is None or len(seeds) < 2:
        return sem
    return math.hypot(sem, statistics.stdev(seeds) / math.sqrt(len(seeds)))


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a result.json with its digest, which tells whether it was damaged since."""
    return content | {_DIGEST: _digest(content)}


def read_examples(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an examples.npz. Raises UserError where the file is missing or damaged."""
    if not path.exists():
        raise UserError(f"{path} is missing: the figure draws what it holds")
    try:
        with np.load(path) as file:
            return dict(file)
    except UNREADABLE as error:
        raise UserError(f"{path} is damaged: {first_line(error)}") from error


def load_results(folders: Iterable[Path], preset: str | None = None) -> list[Result]:
    """Every result of `preset` (None: any) below `folders`; of equal configs, the result of the earlier folder.

    Raises:
      UserError: a result.json that cannot be read.
    """
    found: dict[str, Result] = {}
    for source, folder in enumerate(folders):
        for path in _result_files(folder):
            if not is_put_aside(path.relative_to(folder)):
                result = Result(path.parent, read(path), source)
                found.setdefault(result.content["config_hash"], result)
    return [result for result in found.values() if preset in (None, result.preset)]


def _result_files(folder: Path) -> list[Path]:
    """Every result.json below a folder, without a look at checkpoints, which may be moved meanwhile."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "checkpoints"]
        found += [Path(place) / name for name in files if name == "result.json"]
    return sorted(found)


def comparable(
    results: Iterable[Result],
    name: str,
    cell: Callable[[Result], Hashable],
    data: Callable[[Result], Any] = lambda result: (),
    variant: Callable[[Result], Any] = lambda result: (),
) -> dict[Any, Result]:
    """Cell -> the result that fills it: what may stand in one table or figure.

    An evaluation of given weights (--weights) is no training, and fills none. Results are chosen by data first, so that
    a stand-in never hides real data, whatever its preset; then by preset, that which fills the most cells, of equals
    the most serious; then by variant. Of runs in one folder that differ in seeds and their placement alone, that with
    the most seeds fills the cell. If others claim one cell (one has overrides, say), the earlier folder wins, and
    stderr says so.

    Args:
      results: of any experiments, in the order of `load_results`.
      name: the config's name, '<paper>/<experiment>'.
      cell: the cell of a result.
      data: rank of the data that a run saw; the least rank is chosen.
      variant: what results beside each other have in common otherwise; the least is chosen.

    Raises:
      UserError: two results of one folder claim one cell.
    """
    own = _least([result for result in results if result.name == name and "weights" not in result.config], data)
    filled = {preset: {cell(result) for result in own if result.preset == preset} for preset in PRESETS}
    preset = max(PRESETS, key=lambda preset: len(filled[preset]))  # one table never mixes two
    found: dict[Any, Result] = {}
    for result in _least([result for result in own if result.preset == preset], variant):
        first = found.setdefault(cell(result), result)
        if first is result:
            continue
        keys = _differences(first.config, result.config, "config")
        if first.source == result.source and keys <= _OF_ONE_RUN:
            found[cell(result)] = max(first, result, key=lambda run: len(run.content["seeds"]))
            continue
        claim = f"{first.folder} and {result.folder} claim one cell of {name} but differ in {', '.join(sorted(keys))}"
        if first.source == result.source:
            raise UserError(f"{claim}: keep one (`python -m scripts.runs --where ... --delete` moves the other away)")
        print(f"note: {claim}: the earlier folder wins", file=sys.stderr)
    return found


def of_one_data(results: Iterable[Result], group: Callable[[Result], Hashable], *told: str) -> list[Result]:
    """The results of each group whose facts `told` are those of its first; stderr says which are left out.

    A part of a data set, or another unit, is no stand-in for the rest of a column.
    """
    kept, first = [], {}
    for result in results:
        own = tuple(result.content["facts"].get(name) for name in told)
        other = first.setdefault(group(result), own)
        if own == other:
            kept.append(result)
        else:
            print(f"note: left out: {result.folder}: {own} beside {other}", file=sys.stderr)
    return kept


def facts(results: Iterable[Result], metric: str) -> dict[str, str]:
    """What a table says of its results in every format: preset, number of seeds, and the n of `metric`."""
    results = list(results)
    return {
        "preset": several(result.preset for result in results),
        "seeds": several(len(result.content["seeds"]) for result in results),
        "n": several(result.metrics[metric]["n"] for result in results),
    }


def drawn(told: dict[str, str]) -> str:
    """What a standard error is over, before the word for a task, by `facts`: '1000', or 'seeds and 1000'."""
    return told["n"] if told["seeds"] == "1" else f"seeds and {told['n']}"


def seeds_of(told: dict[str, str]) -> str:
    """How many trainings a mean is over, by `facts`: '1 seed', '3 seeds', or '1 or 3 seeds' where they differ."""
    return f"{told['seeds']} seed" if told["seeds"] == "1" else f"{told['seeds']} seeds"


def spread(results: Iterable[Result], metric: str, tasks: str) -> str:
    """What a standard error is over, for figures: '3 seeds and 1000 tasks', or '1000 tasks, of 1 seed'."""
    told = facts(results, metric)
    if told["seeds"] == "1":
        return f"{told['n']} {tasks}, of 1 seed"
    return f"{seeds_of(told)} and {told['n']} {tasks}"


def seeds_in(results: Iterable[Result]) -> str:
    """As `seeds_of`, of results themselves."""
    return seeds_of({"seeds": several(len(result.content["seeds"]) for result in results)})


def seeds_by_name(results: Mapping[str, Result]) -> str:
    """As `seeds_of`, and where numbers differ who has another than most: '1 seed (CNP, NP: 3)'."""
    usual, others = usual_and_others({name: len(result.content["seeds"]) for name, result in results.items()})
    return seeds_of({"seeds": usual}) + others


def steps_by_name(results: Mapping[str, Result]) -> str:
    """'3000 steps (CNP: 900 of 1000)': what most were trained for, and who for another number; see `Result.steps`."""
    usual, others = usual_and_others({name: result.steps for name, result in results.items()})
    return f"{usual} steps{others}"


def usual_and_others(numbers: Mapping[str, Any]) -> tuple[str, str]:
    """What most names have, and ' (A, B: 3; C: 5)' of those that have another number, '' if none has."""
    usual = statistics.mode(sorted(numbers.values()))
    others = [
        f"{', '.join(name for name in numbers if numbers[name] == number)}: {number}"
        for number in sorted({*numbers.values()} - {usual})
    ]
    return str(usual), f" ({'; '.join(others)})" if others else ""


def several(values: Iterable[Any]) -> str:
    """'2000', or '1600 or 2000' where they differ."""
    return " or ".join(map(str, sorted(set(values))))


def overridden(results: Mapping[str, Result]) -> str:
    """'; A, B with train.steps=20' for a caption, of those results whose command line changed their config; else ''.

    Their numbers of seeds are for `seeds_by_name` to say.
    """
    names = {}
    for name, result in results.items():
        changes = [f"{key}={value}" for key, value in result.overrides.items() if key != "train.seeds"]
        names.setdefault(" and ".join(changes), []).append(name)
    return "".join(f"; {', '.join(named)} with {changes}" for changes, named in names.items() if changes)


def _least(results: list[Result], key: Callable[[Result], Any]) -> list[Result]:
    """The results whose key is least."""
    least = min(map(key, results), default=None)
    return [result for result in results if key(result) == least]


def _differences(one: Any, other: Any, where: str) -> set[str]:
    """The keys of two configs whose values differ, such as 'config.train.steps'."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return set() if one == other else {where}
    return set().union(
        *(_differences(one.get(key), other.get(key), f"{where}.{key}") for key in one.keys() | other.keys())
    )


def read(path: Path) -> dict[str, Any]:
    """The content of a result.json. Raises UserError where it is damaged, or is no result."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a result: it holds no object")
    wrong = [key for key, kind in _KEYS.items() if not isinstance(content.get(key), kind)]
    if wrong:
        raise UserError(f"{path} is not a result: it lacks {', '.join(wrong)}")
    if not all(re.fullmatch(r"\w[\w.-]*", part) for part in content["name"].split("/")):
        raise UserError(f"{path} is not a result: its name is {content['name'][:100]!r}")
    if content.get(_DIGEST, _digest(content)) != _digest(content):  # older results have none
        raise UserError(f"{path} is damaged: its numbers are not those that were written")
    return content


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps({key: value for key, value in content.items() if key != _DIGEST}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
