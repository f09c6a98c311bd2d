"""The tables and figures of all papers, by '<paper>/<name>'."""

import importlib
from collections.abc import Callable

from experiments.harness.settings import choose

# kind -> paper -> the package of experiments/ that has it: tables.TABLES, figures.FIGURES.
_PAPERS = {
    "tables": {"intention": "intention", "cmanp": "neural_processes", "kvq": "kvq"},
    "figures": {"intention": "intention", "cmanp": "neural_processes", "kvq": "kvq"},
}


def names(kind: str) -> list[str]:
    """All names of a kind, 'tables' or 'figures'."""
    return sorted(_all(kind))


def find(kind: str, name: str) -> Callable:
    """The function that builds the table or draws the figure. Raises ConfigError for an unknown name."""
    return choose(_all(kind), name, f"--{kind.removesuffix('s')}")


def _all(kind: str) -> dict[str, Callable]:
    modules = {
        paper: importlib.import_module(f"experiments.{package}.{kind}") for paper, package in _PAPERS[kind].items()
    }
    return {
        f"{paper}/{name}": entry
        for paper, module in modules.items()
        for name, entry in getattr(module, kind.upper()).items()
    }
