"""Lists results: python -m scripts.runs [--name sine] [--metric trained/mse@5 --sort metric] [--format csv]

One line for each result below --results, as tables and figures would read them. "older code" marks a result that
today's code might not reproduce: code that trains or evaluates it has changed, or the result does not tell its code.
"""

import math
import re
import sys
from pathlib import Path

from absl import flags

from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.provenance import code_digest
from experiments.harness.results import Result, load_results
from experiments.harness.settings import choose
from experiments.harness.tables import Cell, Table, measured
from kvq_jax.names import unknown

_RESULTS = flags.DEFINE_list("results", ["runs", "results"], "folders of results; the first that has a config wins")
_NAME = flags.DEFINE_string("name", "", "only results whose name has this in it")
_METRIC = flags.DEFINE_string("metric", None, "the metric to show; default: the main metric of each result")
_SORT = flags.DEFINE_string("sort", "name", "name, metric or time")
_FORMAT = flags.DEFINE_string("format", "table", "table or csv")

_COLUMNS = ("name", "axes", "preset", "overrides", "steps", "metric", "mean", "sem", "seconds", "code")


def _list(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    show, key = choose(_FORMATS, _FORMAT.value, "--format"), choose(_SORTS, _SORT.value, "--sort")
    folders = list(map(Path, _RESULTS.value))
    found = [result for result in load_results(folders) if _NAME.value in result.name]
    if not found:
        named = f" with {_NAME.value!r} in its name" if _NAME.value else ""
        raise UserError(f"no result{named} below {', '.join(map(str, folders))}")
    known = {name for result in found for name in result.metrics}
    if _METRIC.value and _METRIC.value not in known:  # the message has one entry for metrics that differ in a number
        raise UserError(unknown("--metric", _METRIC.value, sorted({re.sub("@.*", "@N", name) for name in known})))
    rows = [(result.name, _cells(result)) for result in sorted(found, key=key)]
    show(Table("Results", _COLUMNS, rows, ""))


def _cells(result: Result) -> list:
    metric = _metric(result)
    axes = {name: value for name, value in result.axes.items() if name != "preset"}
    code = result.content["code_version"] or "no version"
    if result.code != code_digest(result.config["experiment"]):
        code += ", older code"
    cell = measured(result.metrics.get(metric))
    numbers = [Cell(cell.mean), Cell(cell.error), f"{_seconds(result):.0f}"]
    return [_listed(axes), result.preset, _listed(result.overrides), result.steps, metric, *numbers, code]


def _metric(result: Result) -> str:
    """--metric, or the trained model's metric of the shortest name: those of baselines are longer."""
    names = sorted(result.metrics, key=lambda name: (not name.startswith("trained/"), len(name), name))
    return _METRIC.value or next(iter(names), "none")


def _by_metric(result: Result) -> tuple:
    """Smallest first; results without the metric, and means that are not finite, at the end."""
    mean = measured(result.metrics[_metric(result)]).mean if _metric(result) in result.metrics else math.nan
    return (math.isnan(mean), mean)


def _seconds(result: Result) -> float:
    return result.content["wall_time_s"]


def _listed(values: dict) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _print_table(table: Table) -> None:
    command_line.console().print(table.terminal())


_by_name = lambda result: (result.name, result.preset, _listed(result.axes))
_SORTS = {"name": _by_name, "metric": _by_metric, "time": _seconds}
_FORMATS = {"table": _print_table, "csv": lambda table: print(table.csv(), end="")}

if __name__ == "__main__":
    sys.exit(command_line.guarded(_list, sys.argv, cache=False))
