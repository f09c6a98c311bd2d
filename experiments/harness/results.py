"""Results as data: what result.json holds, and how tables and figures read a folder of them."""

import dataclasses
import functools
import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.errors import UserError

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "kvq_jax")


@dataclasses.dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
      folder: where it lies.
      content: its result.json.
      source: the place of the folder that it was found below, among those that were searched.
    """

    folder: Path
    content: dict[str, Any]
    source: int = 0

    @property
    def name(self) -> str:
        """'<paper>/<experiment>'."""
        return self.content["name"]

    @property
    def preset(self) -> str:
        return self.content["axes"]["preset"]

    @property
    def config(self) -> dict[str, Any]:
        return self.content["config"]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Name of a metric to its mean, sem, median, n and means per seed."""
        return self.content["metrics"]

    @property
    def steps(self) -> str:
        """'2000', or '900 of 2000' where the weights that are judged are those of the best validation loss."""
        steps, best = self.content["steps"], self.content["best_step"]
        return str(steps) if best is None or self.config["train"]["select"] != "best" else f"{best} of {steps}"

    @functools.cached_property
    def examples(self) -> dict[str, np.ndarray]:
        """The arrays of examples.npz. Raises UserError where the file is missing."""
        path = self.folder / "examples.npz"
        if not path.exists():
            raise UserError(f"{path} is missing: the figure draws what it holds")
        with np.load(path) as file:
            return dict(file)


def load_results(folders: Iterable[Path]) -> list[Result]:
    """Every result below `folders`, once for each config: a config found in an earlier folder hides it in later ones.

    Raises:
      UserError: a result.json that cannot be read.
    """
    found: dict[str, Result] = {}
    for source, folder in enumerate(folders):
        for path in sorted(folder.rglob("result.json")):
            if ".old-" not in str(path):
                result = Result(path.parent, _read(path), source)
                found.setdefault(result.content["config_hash"], result)
    return list(found.values())


def comparable(
    results: Iterable[Result],
    name: str,
    cell: Callable[[Result], Hashable],
    data: Callable[[Result], Any] = lambda result: (),
    variant: Callable[[Result], Any] = lambda result: (),
) -> dict[Any, Result]:
    """Cell -> the result that fills it: what may stand in one table or figure.

    Chosen in this order: the data, so that a stand-in never hides real ones, whatever its preset; the preset; the variant. A
    run with --config overrides claims the cell of the run without: the one of an earlier folder fills it, and a line on stderr
    says so.

    Args:
      results: of any experiments, in the order of `load_results`.
      name: the experiment, '<paper>/<experiment>'.
      cell: the place that a result fills.
      data: what the runs have seen; the least is chosen.
      variant: what else results that stand beside each other have in common; the least is chosen.

    Raises:
      UserError: two results of one folder claim one cell.
    """
    own = _least([result for result in results if result.name == name], data)
    preset = latest_preset(own)
    found: dict[Any, Result] = {}
    for result in _least([result for result in own if result.preset == preset], variant):
        first = found.setdefault(cell(result), result)
        if first is result:
            continue
        keys = ", ".join(sorted(_differences(first.config, result.config, "config")))
        claim = f"{first.folder} and {result.folder} claim one cell of {name} but differ in {keys}"
        if first.source == result.source:
            raise UserError(f"{claim}: keep one out of --results")
        print(f"note: {claim}: the first fills it", file=sys.stderr)
    return found


def facts(results: Iterable[Result], metric: str) -> dict[str, str]:
    """What every form of a table says of its results: their preset, their number of seeds, and the n of `metric`."""
    results = list(results)
    return {
        "preset": several(result.preset for result in results),
        "seeds": several(len(result.content["seeds"]) for result in results),
        "n": several(result.metrics[metric]["n"] for result in results),
    }


def several(values: Iterable[Any]) -> str:
    """'2000', or '1600 or 2000' where they differ."""
    return " or ".join(map(str, sorted(set(values))))


def latest_preset(results: Iterable[Result]) -> str | None:
    """The most serious preset among `results`: one table never mixes two. None where there are no results."""
    present = {result.preset for result in results}
    return next((preset for preset in ("paper", "quick", "tiny") if preset in present), None)


def provenance() -> dict[str, Any]:
    """What a number depends on beside its config: code, packages, Python."""
    return {
        "code_version": _code_version(),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
    }


def _least(results: list[Result], key: Callable[[Result], Any]) -> list[Result]:
    """Those whose key is the least there is."""
    least = min(map(key, results), default=None)
    return [result for result in results if key(result) == least]


def _differences(one: Any, other: Any, where: str) -> set[str]:
    """The keys of two configs whose values differ, such as 'config.train.steps'."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return set() if one == other else {where}
    return set().union(
        *(_differences(one.get(key), other.get(key), f"{where}.{key}") for key in one.keys() | other.keys())
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    missing = [key for key in ("name", "axes", "config", "config_hash", "metrics") if key not in content]
    if missing:
        raise UserError(f"{path} is not a result: it lacks {', '.join(missing)}")
    return content


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _code_version() -> str | None:
    """The commit of the checkout, with '-dirty' where files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        root = Path(__file__).parents[2]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
