"""What joins results with the tables and figures that show them."""

import io
import types
from pathlib import Path

import pytest
from rich.console import Console

from experiments import catalogue
from experiments.harness.errors import ConfigError
from experiments.harness.results import Result
from experiments.harness.tables import Table


def module(label: str, **attributes) -> types.SimpleNamespace:
    def run_table(result):
        return Table(f"{label}:{result.name}", ["a"], [], "")

    def run_figure(result, folder):
        return folder / f"{label}.png"

    return types.SimpleNamespace(run_table=run_table, run_figure=run_figure, **attributes)


def shown(monkeypatch, name: str, experiment: str, **modules) -> str:
    found = tuple((key.replace("__", "."), made) for key, made in modules.items())
    monkeypatch.setattr(catalogue, "_modules", lambda kind, papers: found)
    console = Console(file=io.StringIO(), width=100)
    catalogue.show(Result(Path("run"), {"name": name, "config": {"experiment": experiment}}), Path("out"), console)
    return console.file.getvalue()


def test_a_run_is_shown_by_its_name_then_by_its_experiment_then_by_the_default(monkeypatch):
    modules = {
        "paper__one": module("one", CONFIGS=("paper/first",)),
        "paper__two": types.SimpleNamespace(TABLES={}),
        "paper__three": module("three"),
        "regression": module("default"),
    }
    for name, experiment, expected in (
        ("paper/first", "paper.three", "one"),
        ("paper/any", "paper.three", "three"),
        ("paper/any", "paper.two", "default"),
        ("paper/any", "paper.none", "default"),
    ):
        told = shown(monkeypatch, name, experiment, **modules)
        assert f"{expected}:{name}" in "".join(told.split()) and f"figure out/{expected}.png" in told


@pytest.mark.parametrize("kind", ["tables", "figures"])
def test_what_shows_a_run_is_found_in_the_papers_of_its_config_and_its_experiment(kind):
    """No module shows configs of another paper, and no others are looked at."""
    for experiment, found in catalogue._modules(kind):
        paper = experiment.partition(".")[0]
        assert all(config.startswith(f"{paper}/") for config in getattr(found, "CONFIGS", ())), experiment
    own = dict(catalogue._modules(kind, frozenset({"neural_processes", "regression"})))
    assert {name.partition(".")[0] for name in own} == {"neural_processes", "regression"}
    assert own.items() <= dict(catalogue._modules(kind)).items()


def test_two_modules_cannot_define_one_name(monkeypatch):
    twice = tuple((name, types.SimpleNamespace(TABLES={"paper/table1": print})) for name in ("a", "b"))
    monkeypatch.setattr(catalogue, "_modules", lambda kind: twice)
    with pytest.raises(ValueError, match="defined by two modules: paper/table1"):
        catalogue.names("tables")


@pytest.mark.parametrize("kind", ["tables", "figures"])
def test_names_are_of_a_paper_and_unknown_ones_name_the_nearest(kind):
    names = catalogue.names(kind)
    assert len(names) > 8 and all(name.count("/") == 1 for name in names)
    assert all(callable(catalogue.find(kind, name)) for name in names)
    with pytest.raises(ConfigError, match=f"unknown --{kind[:-1]} '{names[0]}x': did you mean"):
        catalogue.find(kind, f"{names[0]}x")
