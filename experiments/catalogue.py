"""The tables, figures and findings of all experiments, and what shows one run: what joins results with what shows them.

Every tables.py, figures.py and findings.py in the folder of an experiment is found. Such a module may define:

    TABLES, FIGURES     '<paper>/<name>' -> a function of results (tables), of results and a folder (figures)
    FINDINGS            '<paper>/<name>' -> a function of results that yields sentences (harness/findings.py)
    CONFIGS             names of the configs of its own paper whose single runs it shows
    run_table, run_figure    what shows one of them: result -> Table, (result, folder) -> Path
"""

import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from rich.console import Console

from experiments.harness.results import Result
from experiments.harness.settings import choose

_ROOT = Path(__file__).parent
_DEFAULT = "regression"  # the experiment whose table and figure show the runs that no other module shows


def names(kind: str) -> list[str]:
    """All names of a kind, 'tables', 'figures' or 'findings'."""
    return sorted(_all(kind))


def find(kind: str, name: str) -> Callable:
    """What builds the table, draws the figure or yields the findings. Raises ConfigError for an unknown name."""
    return choose(_all(kind), name, f"--{kind.removesuffix('s')}")


def show(result: Result, folder: Path, console: Console) -> None:
    """Prints the table of one run and draws its figure into `folder`."""
    console.print(_of_run("tables", result).run_table(result).terminal())
    console.print(f"figure {_of_run('figures', result).run_figure(result, folder)}", soft_wrap=True, markup=False)


def _of_run(kind: str, result: Result) -> ModuleType:
    """The module that shows `result`: by the name of its config, else that of its experiment, else the default.

    Modules of other papers are left alone: to import all of them takes a second.
    """
    experiment = result.config["experiment"]
    papers = frozenset(name.replace("/", ".").partition(".")[0] for name in (result.name, experiment, _DEFAULT))
    found = dict(_modules(kind, papers))
    by_name = [module for module in found.values() if result.name in getattr(module, "CONFIGS", ())]
    own = found.get(experiment)
    return next(
        module for module in (*by_name, own, found[_DEFAULT]) if hasattr(module, f"run_{kind.removesuffix('s')}")
    )


def _all(kind: str) -> dict[str, Callable]:
    """Name -> function. Raises ValueError where two modules define one name."""
    entries = [entry for _, module in _modules(kind) for entry in getattr(module, kind.upper(), {}).items()]
    twice = {name for name, _ in entries if [other for other, _ in entries].count(name) > 1}
    if twice:
        raise ValueError(f"defined by two modules: {', '.join(sorted(twice))}")
    return dict(entries)


@functools.cache
def _modules(kind: str, papers: frozenset[str] | None = None) -> tuple[tuple[str, ModuleType], ...]:
    """(experiment as configs name it, its module `kind`), of every experiment of `papers` (None: all) that has one."""
    return tuple(
        (experiment, importlib.import_module(f"experiments.{experiment}.{kind}"))
        for experiment in _experiments(kind)
        if papers is None or experiment.partition(".")[0] in papers
    )


def _experiments(kind: str) -> Iterator[str]:
    for path in sorted((*_ROOT.glob(f"*/{kind}.py"), *_ROOT.glob(f"*/*/{kind}.py"))):
        folder = path.parent.relative_to(_ROOT)
        if folder.parts[0] not in ("harness", "data", "tasks"):
            yield ".".join(folder.parts)
