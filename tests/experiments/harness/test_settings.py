"""Every key of a config section is accounted for."""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from flax import linen as nn
from flax.core import FrozenDict
from ml_collections import ConfigDict

from experiments.harness.errors import ConfigError
from experiments.harness.settings import build, build_named, check_sections, choose


@dataclasses.dataclass(frozen=True)
class Example:
    name: str
    rate: float
    steps: int
    sizes: tuple

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError("steps must not be negative")


GOOD = dict(name="a", rate=0.5, steps=3, sizes=(1, 2))


class Layer(nn.Module):
    width: int = 3


class Block(nn.Module):
    op: str | Mapping[str, Any] | Callable = "softmax"


class Cross(nn.Module):
    op: str | Mapping[str, Any] | Callable | None = None


def test_builds_what_the_section_says():
    assert build(Example, GOOD, "config.example") == Example("a", 0.5, 3, (1, 2))
    assert build(Example, GOOD | {"rate": 1, "sizes": [4]}, "config.example") == Example("a", 1.0, 3, (4,))
    assert build(Layer, {"width": 5}, "config.layer").width == 5


@pytest.mark.parametrize(
    "section, message",
    [
        (GOOD | {"step": 1}, r"unknown key of config.example 'step': did you mean 'steps'\?"),
        ({k: v for k, v in GOOD.items() if k != "rate"}, "config.example.rate: missing key"),
        (GOOD | {"steps": 2.0}, "config.example.steps: expected int, got 2.0"),
        (GOOD | {"steps": True}, "config.example.steps: expected int, got True"),
        (GOOD | {"name": 1}, "config.example.name: expected str, got 1"),
        (GOOD | {"steps": -1}, "config.example: steps must not be negative"),
    ],
)
def test_refuses(section, message):
    with pytest.raises(ConfigError, match=message):
        build(Example, section, "config.example")


def test_a_default_fills_nothing():
    with pytest.raises(ConfigError, match="config.layer.width: missing key"):
        build(Layer, {}, "config.layer")


def test_an_operator_is_a_name_or_a_section():
    section = ConfigDict({"op": {"name": "nystroem_intention", "landmarks": [1, 2], "more": {"a": 1}}})
    block = build(Block, section, "config.block")
    assert block.op == FrozenDict(name="nystroem_intention", landmarks=(1, 2), more=FrozenDict(a=1))
    assert hash(block) == hash(build(Block, section, "config.block"))
    assert build(Block, {"op": "linear"}, "config.block").op == "linear"
    assert build(Cross, {"op": None}, "config.block").op is None
    for cls, value in ((Block, 3), (Block, None), (Cross, 3)):
        with pytest.raises(ConfigError, match="config.block.op: expected a name, or a section"):
            build(cls, {"op": value}, "config.block")


def test_a_named_section_is_of_a_class_or_of_a_row_with_one():
    row = collections.namedtuple("Row", "cls label")(Layer, "The layer")
    for table in ({"layer": Layer}, {"layer": row}):
        assert build_named(table, {"name": "layer", "width": 5}, "config.layer") == Layer(5)
    with pytest.raises(ConfigError, match=r"unknown config.layer.name 'later': did you mean 'layer'\?"):
        build_named({"layer": row}, {"name": "later"}, "config.layer")


def test_fields_of_flax_are_not_settings():
    with pytest.raises(ConfigError, match="unknown key of config.layer 'parent'"):
        build(Layer, {"width": 1, "parent": None}, "config.layer")


def test_sections_are_exactly_those_known():
    check_sections({"train": 1, "task": 2}, ["task", "train"])
    with pytest.raises(ConfigError, match=r"unknown section of the config 'trian': did you mean 'train'\?"):
        check_sections({"trian": 1}, ["train"])
    with pytest.raises(ConfigError, match="config.task: missing section"):
        check_sections({"train": 1}, ["task", "train"])


def test_choose_names_the_nearest():
    assert choose({"sine": 1}, "sine", "config.task.name") == 1
    with pytest.raises(ConfigError, match=r"unknown config.task.name 'sin': did you mean 'sine'\?"):
        choose({"sine": 1, "pixels": 2}, "sin", "config.task.name")
