"""Python files that a user names, config files first: what is wrong with one is told in a line, with its place."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from experiments.harness.errors import ConfigError, Stopped, UserError, first_line
from kvq_jax.names import unknown

_IDENTITY = ("name", "experiment", "axes")  # sections of a config that nothing changes


def load(file: Path, function: str = "get_config") -> ModuleType:
    """The config file as a module.

    Raises ConfigError where there is no such file, where it cannot be run, or has no `function`.
    """
    if not file.is_file():
        raise ConfigError(unknown("config file", str(file), map(str, sorted(Path("configs").glob("*/*.py")))))
    module = _module(file)
    if not callable(getattr(module, function, None)):
        raise ConfigError(f"{file} has no {function}()")
    return module


def definitions(file: Path, *names: str) -> list[Any]:
    """What a Python file defines under these names. Raises ConfigError where it cannot be run or lacks one."""
    if not file.is_file():
        raise ConfigError(f"no file {file}")
    module = _module(file)
    for name in names:
        if not hasattr(module, name):
            raise ConfigError(f"{file} does not define {name}")
    return [getattr(module, name) for name in names]


def config_of(module: ModuleType, axes: str) -> ConfigDict:
    """The config that get_config() of a module returns for axes 'axis=value,...'. Raises ConfigError where it fails."""
    file = Path(module.__file__)
    with blamed(file):
        try:
            config = module.get_config(axes or None)
        except ValueError as error:  # of configs.common: an unknown axis or value
            raise ConfigError(f"{file}: {first_line(error)}") from error
    check_returned(file, "get_config", config, ConfigDict)
    return config


def type_of(config: ConfigDict, key: str) -> type:
    """The type of a key 'section.name' of the config, `object` for a key of several types.

    Raises ConfigError unless a command line may change it.
    """
    section, kind, where = config, ConfigDict, "config"
    for part in key.split("."):
        if not isinstance(section, ConfigDict):
            raise ConfigError(f"{where} is no section: it has no {part!r}")
        if part not in section:
            raise ConfigError(unknown(f"key of {where}", part, section))
        section, kind, where = section[part], section.get_type(part), f"{where}.{part}"
    if key.partition(".")[0] in _IDENTITY:
        raise ConfigError(f"{where}: says what the config is; its axes follow the colon of --config FILE:")
    return kind


def plain(value: Any) -> Any:
    """A value of a config that JSON and a command line hold: sections as dicts."""
    return value.to_dict() if isinstance(value, ConfigDict) else value


def check_returned(file: Path, function: str, found: Any, expected: type) -> None:
    """Raises ConfigError where a function of a file returned something else than it should."""
    if not isinstance(found, expected):
        returns = f"{function}() returns a {type(found).__name__}, expected a {expected.__name__}"
        raise ConfigError(f"{file}: {returns}")


@contextlib.contextmanager
def blamed(file: Path) -> Iterator[None]:
    """Within it, whatever the code of a file raises becomes a ConfigError with its place; errors of the user pass."""
    try:
        yield
    except (Stopped, UserError):
        raise
    except BaseException as error:  # sys.exit() in a config is no way to leave, either
        raise ConfigError(f"{_place(error, file)}: {type(error).__name__}: {first_line(error)}") from error


def _module(file: Path) -> ModuleType:
    """A file as a module. Raises ConfigError where it cannot be run."""
    module = ModuleType("config_file")
    module.__file__ = str(file)
    with blamed(file):
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    return module


def _place(error: BaseException, file: Path) -> str:
    """'file:line' of the last line of the file that an error went through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    found: list[Any] = [number for number in (*lines, line) if number]
    return f"{file}:{found[-1]}" if found else str(file)
