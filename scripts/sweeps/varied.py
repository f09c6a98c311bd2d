"""Runs beside each other: a table by the axes and overrides in which they differ."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.harness import config_text
from experiments.harness.errors import UserError
from experiments.harness.results import Result, load_results
from experiments.harness.run_directory import config_json
from experiments.harness.tables import Cell as Number
from experiments.harness.tables import Table, measured
from scripts.sweeps.cells import Cell
from scripts.sweeps.space import literal


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run that is there, or is missing.

    Attributes:
      config: of the run, with its axes.
      chosen: its axes, and the config keys that the command line changed.
      result: None where there is none.
    """

    config: Mapping[str, Any]
    chosen: frozenset[str]
    result: Result | None

    def value(self, key: str) -> Any:
        """Of an axis or a config key; '' where the config has none."""
        if key in self.config["axes"]:
            return self.config["axes"][key]
        return config_text.value_of(self.config, key, "")

    def has(self, key: str, text: str) -> bool:
        """Whether an axis or a config key has a value, written as a Python literal or plainly."""
        value = self.value(key)
        return str(value) == text or literal(text) == (tuple(value) if isinstance(value, list) else value)

    def number(self, metric: str) -> Number:
        """A metric of the run."""
        metrics = self.result.metrics if self.result else {}
        return measured(metrics[metric]) if metric in metrics else Number()


def of_result(result: Result) -> Entry:
    """The entry of a run that is there."""
    return Entry(result.config, frozenset(result.axes) | frozenset(result.overrides), result)


def of_cell(cell: Cell, root: Path) -> Entry:
    """The entry of a cell of a sweep, whose run is below `root` if it is there; a damaged result is missing."""
    try:
        found = load_results([cell.folder(root)])
    except UserError:  # damaged, which the sweep has said where it came to the cell
        found = []
    config = json.loads(config_json(cell.config))
    return Entry(config, frozenset(config["axes"]) | frozenset(cell.overrides), found[0] if found else None)


def keys_of(entries: Sequence[Entry]) -> list[str]:
    """The axes, then the config keys, that were chosen for some entry and in which entries differ."""
    chosen = sorted({key for entry in entries for key in entry.chosen}, key=lambda key: ("." in key, key))
    return [key for key in chosen if len({repr(entry.value(key)) for entry in entries}) > 1]


def main_metric(metrics: Sequence[str]) -> str | None:
    """The trained model's metric of the shortest name: those of baselines are longer. None where there are none."""
    return min(metrics, key=lambda name: (not name.startswith("trained/"), len(name), name), default=None)


def metric_of(entries: Sequence[Entry], metric: str | None) -> str:
    """`metric`, else the main metric of the first entry that has any."""
    found = [entry.result.metrics for entry in entries if entry.result and entry.result.metrics]
    return metric or (main_metric(list(found[0])) if found else "metric")


def table(entries: Sequence[Entry], metric: str | None = None) -> Table:
    """A row for each entry: the values in which they differ, and a metric, by default the main one."""
    keys, metric = keys_of(entries) or ["preset"], metric_of(entries, metric)
    rows = []
    for entry in entries:
        name, *values = (text_of(entry.value(key)) for key in keys)
        rows.append((name, [*values, entry.number(metric)]))
    there = sum(entry.result is not None for entry in entries)
    return Table("Runs by what differs", [*keys, metric], rows, f"{there} of {len(entries)} runs have a result")


def differences(one: Path, other: Path) -> Table:
    """The config keys in which two runs differ. Raises UserError where a folder holds no run."""
    first, second = (
        dict(line.split(" = ", 1) for line in config_text.knobs(_config(folder))) for folder in (one, other)
    )
    keys = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    rows = [(key, [found[key] if key in found else "none" for found in (first, second)]) for key in keys]
    return Table("Configs", ["key", str(one), str(other)], rows, f"{len(rows)} keys differ")


def _config(folder: Path) -> ConfigDict:
    """The config of a run folder, or of a result without its run."""
    try:
        if (folder / "config.json").exists():
            return ConfigDict(json.loads((folder / "config.json").read_text()))
        return ConfigDict(json.loads((folder / "result.json").read_text())["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # the last two: no mapping in the JSON
        raise UserError(f"{folder} holds no run: {error}") from error


def text_of(value: Any) -> str:
    """A value of an axis or a config key, in one line."""
    return value if isinstance(value, str) else json.dumps(value)
