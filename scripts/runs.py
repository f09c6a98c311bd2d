"""Lists results: python -m scripts.runs [--name sine] [--metric trained/mse@5 --sort metric] [--format csv]

One line for each result below --results, as tables and figures would read them. "older code" marks a result that
today's code might not reproduce: code that trains or evaluates it has changed, or the result does not tell its code.

    --where model=maml,optimizer.learning_rate=0.001     # those with these axes and values of their config
    --varied --picture slices.png       # the runs of a grid: what differs between them, and the metric against each
    --diff runs/.../A,runs/.../B        # the keys in which two configs differ
    --delete                            # moves the runs that are listed into the folder .old-runs beside them

--delete moves run folders alone, as experiments.run makes them, and none in which a process is running.
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
from scripts.sweeps import varied
from scripts.sweeps.trash import move_away

_RESULTS = flags.DEFINE_list("results", ["runs", "results"], "folders of results; the first that has a config wins")
_NAME = flags.DEFINE_string("name", "", "only results whose name has this in it")
_METRIC = flags.DEFINE_string("metric", None, "the metric to show; default: the main metric of each result")
_SORT = flags.DEFINE_string("sort", "name", "name, metric or time")
_FORMAT = flags.DEFINE_string("format", "table", "table or csv")
_WHERE = flags.DEFINE_list("where", [], "KEY=VALUE,...: only results with these values of axes and config keys")
_VARIED = flags.DEFINE_bool("varied", False, "show what differs between the results, and the metric")
_PICTURE = flags.DEFINE_string("picture", None, "draw the metric against each key that differs into this .png file")
_DIFF = flags.DEFINE_list("diff", [], "two run folders, A,B: show the keys in which their configs differ")
_DELETE = flags.DEFINE_bool("delete", False, "move the runs that are listed away; needs --name or --where")

_COLUMNS = ("name", "axes", "preset", "overrides", "steps", "metric", "mean", "sem", "seconds", "code")


def _list(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    _check_flags()
    show, key = choose(_FORMATS, _FORMAT.value, "--format"), choose(_SORTS, _SORT.value, "--sort")
    if _DIFF.value:
        show(varied.differences(*_two(_DIFF.value)))
        return
    folders, wanted = list(map(Path, _RESULTS.value)), [_condition(text) for text in _WHERE.value]
    named = [result for result in load_results(folders) if _NAME.value in result.name]
    found = [result for result in named if all(varied.of_result(result).has(*condition) for condition in wanted)]
    if not found:
        asked = f" with {_NAME.value!r} in its name" if _NAME.value else ""
        asked += f" where {','.join(_WHERE.value)}" if wanted else ""
        raise UserError(f"no result{asked} below {', '.join(map(str, folders))}")
    known = {name for result in found for name in result.metrics}
    if _METRIC.value and _METRIC.value not in known:  # the message has one entry for metrics that differ in a number
        raise UserError(unknown("--metric", _METRIC.value, sorted({re.sub("@.*", "@N", name) for name in known})))
    found = sorted(found, key=key)
    if _VARIED.value or _PICTURE.value:
        if _PICTURE.value and len(names := sorted({result.name for result in found})) > 1:
            raise UserError(f"--picture is of one experiment, here are {', '.join(names)}: choose with --name")
        entries = [varied.of_result(result) for result in found]
        show(varied.table(entries, _METRIC.value))
        if _PICTURE.value:
            _draw(entries, Path(_PICTURE.value))
        return
    show(Table("Results", _COLUMNS, [(result.name, _cells(result)) for result in found], ""))
    if _DELETE.value:
        _delete(found, folders)


def _check_flags() -> None:
    """Raises UserError for flags that exclude each other."""
    given = lambda *names: [name for name in names if flags.FLAGS[name].value]
    if _DIFF.value and (others := given("name", "where", "metric", "varied", "picture", "delete")):
        raise UserError(f"--diff compares two runs: it goes without --{others[0]}")
    if _DELETE.value and (others := given("varied", "picture")):
        raise UserError(f"--delete goes without --{others[0]}: look first, then delete")


def _two(folders: list[str]) -> list[Path]:
    if len(folders) != 2:
        raise UserError(f"--diff takes two run folders, A,B, not {len(folders)}")
    return list(map(Path, folders))


def _condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):  # without a value it would be all that lack the key
        raise UserError(f"--where {text}: expected KEY=VALUE")
    return key, value


def _draw(entries: list[varied.Entry], path: Path) -> None:
    from scripts.sweeps import slices  # matplotlib takes a second to import

    if path.suffix != ".png":
        raise UserError(f"--picture {path}: expected a name that ends in .png")
    print(f"figure {slices.draw(entries, path, _METRIC.value)}")


def _delete(found: list[Result], folders: list[Path]) -> None:
    if not (_NAME.value or _WHERE.value):
        raise UserError("--delete needs --name or --where: which results?")
    for moved in move_away([(result.folder, folders[result.source]) for result in found]):
        print(f"moved to {moved}")


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
    """--metric, or the main metric of the result."""
    return _METRIC.value or varied.main_metric(list(result.metrics)) or "none"


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
