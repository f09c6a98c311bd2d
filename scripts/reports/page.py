"""The report as text: one HTML page, and the findings in Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from experiments.harness.findings import listed
from experiments.harness.tables import Cell
from scripts.reports.contents import PAPERS, Group, Paper, made

_HERE = Path(__file__).parent


def html(papers: Sequence[Paper], count: int) -> str:
    """The page; count: of the results that it was made from."""
    loader = jinja2.FileSystemLoader(_HERE)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"made": made, "is_number": lambda cell: isinstance(cell, Cell)}
    presets = sorted({shown.preset for paper in papers for shown in paper.shown if shown.preset})
    return environment.get_template("page.html").render(papers=papers, presets=presets, count=count)


def markdown(findings: Mapping[str, Sequence[Group]], folders: Sequence[str]) -> str:
    """Every finding under its paper and its name; those that results contradict, or cannot tell, say so.

    folders: of the results.
    """
    read_from = listed([f"`{folder}/`" for folder in folders])
    lines = ["# What we found", "", f"Every number here is read from {read_from} by `python -m scripts.report`."]
    for paper, groups in findings.items():
        if groups:
            lines += ["", f"## {PAPERS[paper]}"]
        for group in groups:
            lines += ["", f"**{group.name}**", ""]
            lines += [("- " if each.holds else "- CONTRADICTED: ") + each.text for each in group.findings]
            lines += [f"- MISSING: {group.missing}"] if group.missing else []
    return "\n".join(lines) + "\n"
