"""Config files as modules: what is wrong with one is told in a line, with its place."""

import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from experiments.harness.errors import ConfigError, Stopped, first_line
from kvq_jax.names import unknown


def load(file: Path, function: str = "get_config") -> ModuleType:
    """The config file as a module.

    Raises ConfigError where there is no such file, where it cannot be run, or has no `function`.
    """
    if not file.is_file():
        raise ConfigError(unknown("config file", str(file), map(str, sorted(Path("configs").glob("*/*.py")))))
    module = ModuleType("config_file")
    module.__file__ = str(file)
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    except Stopped:
        raise
    except BaseException as error:  # sys.exit() in a config is no way to leave, either
        raise ConfigError(f"{_place(error, file)}: {_told(error)}") from error
    if not callable(getattr(module, function, None)):
        raise ConfigError(f"{file} has no {function}()")
    return module


def config_of(module: ModuleType, axes: str) -> ConfigDict:
    """The config that get_config() of a module returns for axes 'axis=value,...'. Raises ConfigError where it fails."""
    try:
        config = module.get_config(axes or None)
    except Stopped:
        raise
    except ValueError as error:  # of configs.common: an unknown axis or value
        raise ConfigError(f"{module.__file__}: {first_line(error)}") from error
    except BaseException as error:
        raise ConfigError(f"{_place(error, Path(module.__file__))}: {_told(error)}") from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(f"{module.__file__}: get_config() returns a {type(config).__name__}, expected a ConfigDict")
    return config


def _place(error: BaseException, file: Path) -> str:
    """'file:line' of the last line of the file that an error went through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    found: list[Any] = [number for number in (*lines, line) if number]
    return f"{file}:{found[-1]}" if found else str(file)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
