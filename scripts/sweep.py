"""Runs every cell of a config's sweep() that has no result yet: python -m scripts.sweep --config configs/<paper>/<experiment>.py:preset=quick

Each cell is a run of its own, as experiments.run would make it, and resumes if it was killed. A cell that fails is reported
and the others go on; the exit code is then that of the last failure. --dry_run lists the cells and does nothing. A config may
have other lists of cells than sweep(): --cells figure14 is figure14() of the config.

A config may define unneeded(config, finished) -> str | None: why a cell can be left out, given the content of the result.json
of every cell of this sweep that has finished. Cells come in the order of sweep(), so a search can end where it succeeds. Of
cells in a row that are left out for one reason, the first is told.
"""
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from absl import flags
from ml_collections import ConfigDict, config_flags
from rich.console import Console

from experiments.harness import command_line, launch
from experiments.harness.errors import ConfigError, Diverged, UserError
from experiments.harness.results import load_results
from experiments.harness.run_directory import default_path

_CONFIG = config_flags.DEFINE_config_file("config", help_string="config file; axes given here hold for every cell")
_WORKDIR = flags.DEFINE_string("workdir", "runs", "folder of the run folders")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of the original data archives, or of prepared TFDS data")
_CELLS = flags.DEFINE_string("cells", "sweep", "the function of the config file that lists the cells")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "list the cells, run nothing")


def load(file: Path, function: str = "sweep") -> ModuleType:
    """The config file as a module. Raises ConfigError where it has no such function."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise ConfigError(f"{file} has no {function}()")
    return module


def cells(module: ModuleType, arg: str, overrides: dict, function: str = "sweep") -> Iterator[tuple[str, ConfigDict]]:
    """(axes, config) of each cell that a function of a config module lists.

    Args:
      module: the config file's.
      arg: axes that hold for every cell, 'axis=value,...'; a cell's own axes come after it.
      overrides: flattened config key -> value, for every cell.
      function: of the module: () -> the axes of each cell.

    Raises:
      ConfigError: an axis or key is unknown to one of the cells.
    """
    for axes in getattr(module, function)():
        text = ",".join(filter(None, [arg, *(f"{name}={value}" for name, value in axes.items())]))
        try:
            config = module.get_config(text)
            config.update_from_flattened_dict(overrides)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"config: {module.__file__}:{text}: {error}") from error
        yield text, config


def main(argv: list[str]) -> int:
    """Runs the command line `argv` and returns its exit code."""
    failures: list[int] = []
    code = command_line.guarded(lambda argv: _sweep(argv, failures), argv)
    return code or (failures[-1] if failures else 0)


def _sweep(argv: list[str], failures: list[int]) -> None:
    command_line.parse_config(argv, _CONFIG)
    flag = flags.FLAGS["config"]
    name, _, arg = config_flags.get_config_filename(flag).partition(":")
    console, root = Console(), Path(_WORKDIR.value)
    options = launch.Options(data_dir=_DATA_DIR.value)
    module = load(Path(name), _CELLS.value)
    unneeded = getattr(module, "unneeded", lambda config, finished: None)
    finished, told = [], None
    for axes, config in list(cells(module, arg, config_flags.get_override_values(flag), _CELLS.value)):
        path = default_path(root, config)
        done = (path / "result.json").exists()
        reason = None if done else unneeded(config, finished)
        if reason is None:
            console.print(f"{'skip, has a result' if done else 'run'}: {name}:{axes} -> {path}", soft_wrap=True, highlight=False)
        elif reason != told:
            console.print(f"skip, not needed: {name}:{axes}: {reason}", soft_wrap=True, highlight=False)
        told = reason
        if done:
            finished.append(load_results([path])[0].content)
        if done or reason or _DRY_RUN.value:
            continue
        try:
            finished.append(launch.launch(config, path, options, console).content)
        except (UserError, Diverged) as error:
            print(f"error: {axes}: {error}", file=sys.stderr)
            failures.append(error.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
