"""Prints a table of a paper from results: python -m scripts.tables --table <paper>/<table> [--format md|tex|csv]

Without --table, lists the tables there are. Results are looked for in --results, first folder first; a cell without a
result is shown as missing.
"""

import sys
from pathlib import Path

from absl import flags

from experiments import catalogue
from experiments.harness import command_line
from experiments.harness.errors import UserError
from experiments.harness.results import PRESETS, load_results
from experiments.harness.run_directory import write_text
from experiments.harness.tables import render

_TABLE = flags.DEFINE_string("table", None, "<paper>/<table>, such as intention/figure7_sine")
_FORMAT = flags.DEFINE_string("format", "md", "md, tex or csv")
_RESULTS = flags.DEFINE_list("results", ["runs", "results"], "folders of results; the first that has a config wins")
_PRESET = flags.DEFINE_enum("preset", None, PRESETS, "of which results; default: those that fill the most of the table")
_OUT = flags.DEFINE_string("out", None, "folder to write the table into, besides printing it")


def _print_table(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    if _TABLE.value is None:
        print("\n".join(catalogue.names("tables")))
        return
    build = catalogue.find("tables", _TABLE.value)
    table = build(load_results(map(Path, _RESULTS.value), _PRESET.value))
    if table is None:
        raise UserError(f"no result for {_TABLE.value} in {', '.join(_RESULTS.value)}")
    name = f"{_TABLE.value}_{_PRESET.value}" if _PRESET.value else _TABLE.value
    text = render(table, _FORMAT.value, name)
    print(text, end="")
    if _OUT.value:
        path = Path(_OUT.value) / f"{name}.{_FORMAT.value}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)


if __name__ == "__main__":
    sys.exit(command_line.guarded(_print_table, sys.argv))
