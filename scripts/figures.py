"""Draws a figure of a paper from results: python -m scripts.figures --figure <paper>/<figure> [--format png|pdf|svg]

Without --figure, lists the figures there are. Results are looked for in --results, first folder first. The picture and,
where it has any, its numbers (CSV) are written below --out, with --preset under a name that ends in it.
"""

import sys
from pathlib import Path

from absl import flags

from experiments import catalogue
from experiments.harness import command_line, drawing
from experiments.harness.results import PRESETS, load_results

_FIGURE = flags.DEFINE_string("figure", None, "<paper>/<figure>, such as intention/figure7")
_RESULTS = flags.DEFINE_list("results", ["runs", "results"], "folders of results; the first that has a config wins")
_FORMAT = flags.DEFINE_string("format", "png", "png, pdf or svg")
_PRESET = flags.DEFINE_enum(
    "preset", None, PRESETS, "of which results; default: those that fill the most of the figure"
)
_OUT = flags.DEFINE_string("out", "figures", "folder to draw into")


def _draw(argv: list[str]) -> None:
    command_line.parse_flags(argv)
    if _FIGURE.value is None:
        print("\n".join(catalogue.names("figures")))
        return
    draw = catalogue.find("figures", _FIGURE.value)
    paper = _FIGURE.value.split("/")[0]
    with drawing.saved_as(_FORMAT.value, f"_{_PRESET.value}" if _PRESET.value else ""):
        print(draw(load_results(map(Path, _RESULTS.value), _PRESET.value), Path(_OUT.value) / paper))


if __name__ == "__main__":
    sys.exit(command_line.guarded(_draw, sys.argv))
