"""From a config section to the object it describes, with every key accounted for.

A section of the config holds exactly the fields of one dataclass or Flax module. A key the class does not have, a field the
section does not set and a value of another type are errors that name the key, so the config file is the whole truth.
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from flax import linen as nn

from experiments.harness.errors import ConfigError, unknown

_OF_FLAX = ("parent", "name")  # fields that flax.linen adds to every module


def choose(table: Mapping[str, Any], name: str, where: str) -> Any:
    """table[name], or a ConfigError that says which config key `where` is wrong and what it may be."""
    if name not in table:
        raise ConfigError(unknown(where, name, table))
    return table[name]


def build(cls: type, section: Mapping[str, Any], where: str, **given: Any) -> Any:
    """An instance of dataclass `cls` from the config section named `where`.

    Args:
      cls: a dataclass or linen module.
      section: the config section; its keys are the fields of `cls`, all of them, less those in `given`.
      where: the section's name in messages, such as 'config.model'.
      **given: fields the caller sets itself.

    Raises:
      ConfigError: an unknown or missing key, or a value of the wrong type.
    """
    fields = {name: field for name, field in fields_of(cls).items() if name not in given}
    for key in section:
        if key not in fields:
            raise ConfigError(unknown(f"key of {where}", key, fields))
    for key in fields:
        if key not in section:
            raise ConfigError(f"{where}.{key}: missing key (a config sets every field of {cls.__name__})")
    hints = typing.get_type_hints(cls)
    values = {key: _checked(section[key], hints.get(key), f"{where}.{key}") for key in section}
    try:
        return cls(**values, **given)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def fields_of(cls: type) -> dict[str, dataclasses.Field]:
    """The fields of a dataclass or linen module that a config section sets, by name."""
    skipped = _OF_FLAX if issubclass(cls, nn.Module) else ()
    return {field.name: field for field in dataclasses.fields(cls) if field.init and field.name not in skipped}


def build_named(table: Mapping[str, type], section: Mapping[str, Any], where: str, **given: Any) -> Any:
    """As `build`, for a section whose `name` says which class of `table` its other keys are the fields of."""
    name, fields = named(section, where)
    return build(choose(table, name, f"{where}.name"), fields, where, **given)


def named(section: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """The `name` of a section and its other keys. Raises ConfigError where it has no name."""
    fields = dict(section)
    if "name" not in fields:
        raise ConfigError(f"{where}.name: missing key")
    return fields.pop("name"), fields


def check_sections(config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises ConfigError unless the config's top-level keys are exactly `known`."""
    known = list(known)
    for key in config:
        if key not in known:
            raise ConfigError(unknown("section of the config", key, known))
    for key in known:
        if key not in config:
            raise ConfigError(f"config.{key}: missing section")


def _checked(value: Any, hint: Any, where: str) -> Any:
    """`value` made fit for a field annotated `hint`: lists become tuples, whole numbers pass as floats."""
    if isinstance(value, list):
        value = tuple(value)
    if hint is float and type(value) is int:
        return float(value)
    simple = hint if hint in (int, float, str, bool) else None
    if simple and type(value) is not simple:
        raise ConfigError(f"{where}: expected {simple.__name__}, got {value!r}")
    return value
