"""A config as text that a person reads, and by the keys that a person writes."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict


def tree(section: ConfigDict, indent: str = "") -> Iterator[str]:
    """One line 'key: value' for each key, those of a section indented below its name."""
    for key, value in section.items():
        if isinstance(value, ConfigDict) and value:
            yield f"{indent}{key}:"
            yield from tree(value, indent + "  ")
        else:
            yield f"{indent}{key}: {_text(value)}"


def knobs(section: ConfigDict, where: str = "") -> Iterator[str]:
    """One line 'section.key = value' for each value: what --config.section.key=... changes."""
    for key, value in section.items():
        if isinstance(value, ConfigDict) and value:
            yield from knobs(value, f"{where}{key}.")
        else:
            yield f"{where}{key} = {_text(value)}"


def value_of(section: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """What a section has by a key with dots, such as 'train.steps'; `default` where it has nothing."""
    for part in key.split("."):
        if not (isinstance(section, Mapping | ConfigDict) and part in section):
            return default
        section = section[part]
    return section


def docstring(file: Path) -> str:
    """The docstring of a config file, '' where it has none."""
    return ast.get_docstring(ast.parse(file.read_bytes())) or ""


def _text(value: Any) -> str:
    if isinstance(value, ConfigDict):
        return "{}"
    return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})" if isinstance(value, tuple) else str(value)
