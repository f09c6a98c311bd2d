"""Results as data: what result.json holds, and how tables and figures read a folder of them."""
import dataclasses
import functools
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable
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
    """

    folder: Path
    content: dict[str, Any]

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
    for folder in folders:
        for path in sorted(folder.rglob("result.json")):
            if ".old-" not in str(path):
                result = Result(path.parent, _read(path))
                found.setdefault(result.content["config_hash"], result)
    return list(found.values())


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
