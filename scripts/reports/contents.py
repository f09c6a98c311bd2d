"""What the report shows: for each paper its findings, tables and figures, from results."""

import base64
import contextlib
import dataclasses
import inspect
import io
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments import catalogue
from experiments.harness.errors import UserError
from experiments.harness.findings import Finding, said
from experiments.harness.results import PRESETS, Result
from experiments.harness.tables import Cell, Table

# The part before the slash in the name of a table or figure -> what the report calls it, in its order.
PAPERS = {
    "intention": "Intention (Garnelo & Czarnecki 2023)",
    "cmanp": "Constant Memory Attentive Neural Processes (Feng et al. 2023)",
    "anp": "Attentive Neural Processes (Kim et al. 2019)",
    "set_transformer": "Set Transformer (Lee et al. 2019)",
    "events": "Events in time (ours, beside Feng et al. 2023)",
    "kvq": "KVQ space (ours)",
}


@dataclasses.dataclass(frozen=True)
class Group:
    """The findings of one name.

    Attributes:
      name: '<paper>/<name>'.
      findings: as far as there are results.
      missing: why no more can be said; None where all is said.
    """

    name: str
    findings: list[Finding]
    missing: str | None


@dataclasses.dataclass(frozen=True)
class Shown:
    """A table or a figure, or why there is none.

    Attributes:
      name: '<paper>/<name>'.
      kind: 'tables' or 'figures'.
      preset: of all its results; '' where there are none.
      table: a table; None for a figure and where it is missing.
      picture: the bytes of a PNG; None for a table and where it is missing.
      caption: of a picture.
      missing: why there is none, in one line; '' where there is one.
      commands: what makes it again.
    """

    name: str
    kind: str
    preset: str = ""
    table: Table | None = None
    picture: bytes | None = None
    caption: str = ""
    missing: str = ""
    commands: Sequence[str] = ()

    @property
    def picture_uri(self) -> str:
        """The picture as part of a page."""
        return "data:image/png;base64," + base64.b64encode(self.picture).decode()


@dataclasses.dataclass(frozen=True)
class Paper:
    """One chapter of the report."""

    key: str
    title: str
    groups: list[Group]
    shown: list[Shown]


def findings_of(results: Sequence[Result]) -> dict[str, list[Group]]:
    """Paper -> its findings, in the order of PAPERS."""
    names = sorted(catalogue.names("findings"), key=_natural)
    return {
        paper: [
            Group(name, *said(catalogue.find("findings", name), results)) for name in names if _paper(name) == paper
        ]
        for paper in PAPERS
    }


def papers_of(results: Sequence[Result], findings: Mapping[str, list[Group]]) -> list[Paper]:
    """All chapters; findings: those of `findings_of`. A table or figure stands once for each preset with results."""
    shown = sorted([*_each("tables", results), *_each("figures", results)], key=lambda each: _natural(each.name))
    return [
        Paper(key, title, findings[key], [each for each in shown if _paper(each.name) == key])
        for key, title in PAPERS.items()
    ]


def made(cell: Cell) -> str:
    """How the number of a cell was made, in a few lines; '' where it is not of a run."""
    if cell.run is None:
        return ""
    content = cell.run.content
    facts = [
        f"preset {cell.run.preset}, {cell.run.steps} steps, seeds {', '.join(map(str, content['seeds']))}",
        f"code {content['code_version']} on {cell.run.device}, {content['wall_time_s']:.0f} s",
        cell.run.command,
    ]
    return "\n".join(facts)


def _each(kind: str, results: Sequence[Result]) -> Iterator[Shown]:
    show = {"tables": _table, "figures": _figure}[kind]
    for name in catalogue.names(kind):
        found = [show(name, preset, [r for r in results if r.preset == preset]) for preset in PRESETS]
        there = [each for each in found if not each.missing]
        yield from there or [dataclasses.replace(found[0], preset="")]


def _table(name: str, preset: str, results: Sequence[Result]) -> Shown:
    draw = f"python -m scripts.tables --table {name}"
    try:
        table = catalogue.find("tables", name)(results) if results else None
    except UserError as error:
        return Shown(name, "tables", preset, missing=str(error), commands=[draw])
    if table is None:
        reason = "no result; configs/README.md says which config it is drawn from"
        return Shown(name, "tables", preset, missing=reason, commands=[draw])
    configs = {
        cell.run.name: preset for _, cells in table.rows for cell in cells if isinstance(cell, Cell) and cell.run
    }
    sweeps = [f"python -m scripts.sweep --config {_config(own, {'preset': preset})}" for own in sorted(configs)]
    return Shown(name, "tables", preset, table=table, commands=[*sweeps, draw])


def _figure(name: str, preset: str, results: Sequence[Result]) -> Shown:
    draw = f"python -m scripts.figures --figure {name}"
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        function = catalogue.find("figures", name)
        try:
            path = function(results, Path(folder))
        except UserError as error:
            return Shown(name, "figures", preset, missing=str(error), commands=[draw])
        caption = inspect.getdoc(getattr(function, "func", function))  # of a partial
        return Shown(name, "figures", preset, picture=path.read_bytes(), caption=caption, commands=[draw])


def _config(name: str, axes: dict[str, str]) -> str:
    return f"configs/{name}.py:" + ",".join(f"{axis}={value}" for axis, value in axes.items())


def _paper(name: str) -> str:
    return name.split("/")[0]


def _natural(name: str) -> list[tuple[bool, int | str]]:
    """A key by which figure9 comes before figure10."""
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.split(r"(\d+)", name) if part]
