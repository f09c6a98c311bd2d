"""From a config section to the object it describes, with every key accounted for.

A section holds every field of one dataclass or Flax module, also those with defaults: the stored config is complete.
An unknown key, a missing field and a value of the wrong type are errors that name the key.
"""

import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from flax.core import FrozenDict
from ml_collections import ConfigDict

from experiments.harness.errors import ConfigError
from kvq_jax import names
from kvq_jax.domains import checked
from kvq_jax.fields import knobs_of
from kvq_jax.names import unknown


def choose(table: Mapping[str, Any], name: str, where: str) -> Any:
    """table[name]. Raises ConfigError, which names the config key `where` and what it may be, for an unknown name."""
    return names.choose(table, name, where, ConfigError)


def build(cls: type, section: Mapping[str, Any], where: str, **given: Any) -> Any:
    """An instance of dataclass `cls` from the config section named `where`.

    Args:
      cls: a dataclass or linen module.
      section: the config section; its keys are all fields of `cls` but those in `given`.
      where: the section's name in messages, such as 'config.model'.
      **given: fields the caller sets itself.

    Raises:
      ConfigError: an unknown or missing key, or a value that the field may not have: see kvq_jax.domains.
    """
    fields = {name: field for name, field in knobs_of(cls).items() if name not in given}
    _check_section(section, where)
    for key in section:
        if key not in fields:
            raise ConfigError(unknown(f"key of {where}", key, fields))
    for key in fields:
        if key not in section:
            raise ConfigError(f"{where}.{key}: missing key (a config sets every field of {cls.__name__})")
    hints = typing.get_type_hints(cls, include_extras=True)
    values = {key: _checked(section[key], hints.get(key), f"{where}.{key}") for key in section}
    try:
        return cls(**values, **given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


def build_named(table: Mapping[str, Any], section: Mapping[str, Any], where: str, **given: Any) -> Any:
    """As `build`, for a section with a `name`: of a class in `table`, or of a row of `table` with a class `cls`."""
    name, fields = named(section, where)
    entry = choose(table, name, f"{where}.name")
    return build(entry if isinstance(entry, type) else entry.cls, fields, where, **given)


def named(section: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    """The `name` of a section and its other keys. Raises ConfigError where it has no name."""
    _check_section(section, where)
    fields = dict(section)
    if "name" not in fields:
        raise ConfigError(f"{where}.name: missing key")
    return fields.pop("name"), fields


def check_sections(config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises ConfigError unless the config's top-level keys are exactly `known`, and all its numbers finite."""
    known = list(known)
    for key in config:
        if key not in known:
            raise ConfigError(unknown("section of the config", key, known))
    for key in known:
        if key not in config:
            raise ConfigError(f"config.{key}: missing section")
    _check_finite(config, "config")


def _checked(value: Any, hint: Any, where: str) -> Any:
    """`value` made fit for a field annotated `hint`: lists become tuples, sections FrozenDicts, ints floats."""
    try:
        return checked(_frozen(value), hint)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_section(section: Any, where: str) -> None:
    if not isinstance(section, (Mapping, ConfigDict)):
        raise ConfigError(f"{where}: expected a section, got {section!r}")


def _check_finite(value: Any, where: str) -> None:
    """Raises ConfigError for NaN and infinity, which the JSON of a result cannot hold, at any depth."""
    if isinstance(value, (Mapping, ConfigDict)):
        for key, entry in value.items():
            _check_finite(entry, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _check_finite(entry, where)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: expected a finite number, got {value!r}")


def _frozen(value: Any) -> Any:
    """`value` with tuples for lists and FrozenDicts for mappings, at any depth: a field of a module is hashable."""
    if isinstance(value, (Mapping, ConfigDict)):
        return FrozenDict({key: _frozen(entry) for key, entry in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value
