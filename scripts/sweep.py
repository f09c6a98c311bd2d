"""Runs every cell of a config that has no result yet: python -m scripts.sweep --config configs/<paper>/<experiment>.py

The cells are those of the config's sweep(), or of its function figure14() with --cells figure14. Axes given with the
config choose among them: `:model=intention,preset=quick` runs only the cells of that model. Each cell is a run of its
own, as experiments.run makes it, and resumes if it was killed. If a cell fails, it is reported and the others go on;
the exit code is then that of the last failure. --dry_run lists the cells and runs nothing.

--workers 4 runs four cells at a time, each in its own process on a quarter of the cores. On a CPU that makes more steps
in all: small models gain little from a second core. On accelerators one run already uses the device.

A config may define unneeded(config, finished) -> str | None: the reason to leave a cell out, given the result.json
contents of all cells of this sweep that have finished. Cells run in the order of sweep(), so a search can end once it
succeeds (with several workers, later cells may have begun by then). Consecutive cells left out for one reason are
reported once.
"""

import concurrent.futures
import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from absl import flags
from ml_collections import ConfigDict, config_flags

from experiments import catalogue
from experiments.harness import command_line, config_files, ending, launch, placement
from experiments.harness.errors import ConfigError, Diverged, UserError
from experiments.harness.results import load_results
from experiments.harness.run_directory import default_path

_CONFIG = config_flags.DEFINE_config_file("config", help_string="config file; axes given here choose among the cells")
_WORKDIR = flags.DEFINE_string("workdir", "runs", "folder of the run folders")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of the original data archives, or of prepared TFDS data")
_CELLS = flags.DEFINE_string("cells", "sweep", "the function of the config file that lists the cells")
_WORKERS = flags.DEFINE_integer("workers", 1, "cells that run at a time, each on its share of the cores", lower_bound=1)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "list the cells, run nothing")


def cells(module: ModuleType, arg: str, overrides: dict, function: str = "sweep") -> Iterator[tuple[str, ConfigDict]]:
    """(axes, config) of each cell that a function of a config module lists and `arg` does not exclude.

    `arg` is axes 'axis=value,...': a cell that gives one of them another value is left out, other cells take it over.
    `overrides`, flattened config key -> value, are for every cell. Raises ConfigError if an axis or key is unknown to
    one of the cells, or no cell is left.
    """
    given = dict(part.partition("=")[::2] for part in filter(None, arg.split(",")))
    fits = lambda axes: all(str(axes[name]) == given[name] for name in axes.keys() & given.keys())
    listed = list(filter(fits, getattr(module, function)()))
    if not listed:
        raise ConfigError(f"no cell of {function}() in {module.__file__} has {arg}")
    for axes in listed:
        text = ",".join(f"{name}={value}" for name, value in (given | axes).items())
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
    overrides = config_flags.get_override_values(flag)
    options = launch.Options(data_dir=_DATA_DIR.value, overrides=overrides)
    console = command_line.console()
    say = functools.partial(console.print, soft_wrap=True, highlight=False)
    module = config_files.load(Path(name), _CELLS.value)
    listed = list(cells(module, arg, overrides, _CELLS.value))
    finished: list[dict] = []
    pending, lock = _pending(module, name, listed, finished, say), threading.Lock()
    running: set[subprocess.Popen] = set()
    ending_now = threading.Event()

    def work(run: Callable[[str, ConfigDict, Path], dict]) -> None:
        while True:
            with lock:
                cell = next(pending, None)
            if cell is None:
                return
            try:
                finished.append(run(*cell))
            except Exception as error:  # of one cell, whatever it is: the others go on
                if ending_now.is_set():
                    return
                told, code = command_line.ending_of(error, argv)
                print(f"error: {cell[0]}: {told}", file=sys.stderr)
                failures.append(code)

    def here(axes: str, config: ConfigDict, path: Path) -> dict:
        return launch.launch(config, path, options, console, catalogue.show).content

    def in_process(axes: str, config: ConfigDict, path: Path) -> dict:
        changed = [f"--config.{key}={value}" for key, value in overrides.items()]
        changed += [f"--data_dir={_DATA_DIR.value}"] if _DATA_DIR.value else []
        content = run_in_process([f"--config={name}:{axes}", *changed, f"--workdir={path}"], path, running)
        say(f"done in {content['wall_time_s']:.0f} s: {name}:{axes}")
        return content

    if _WORKERS.value == 1:
        work(here)
        return

    shares = placement.shares_of_cores(_WORKERS.value)
    with concurrent.futures.ThreadPoolExecutor(len(shares)) as executor:
        workers = [executor.submit(placement.on_cores(share)(work), in_process) for share in shares]
        try:
            for worker in workers:
                worker.result()
        finally:  # a signal may have reached this process alone
            ending_now.set()
            with lock:
                pending.close()
            for process in tuple(running):
                ending.end(process)


def _pending(
    module: ModuleType, name: str, listed: list[tuple[str, ConfigDict]], finished: list[dict], say: Callable
) -> Iterator[tuple[str, ConfigDict, Path]]:
    """(axes, config, run folder) of each cell to run. Says what becomes of each cell; adds results to `finished`."""
    unneeded = getattr(module, "unneeded", lambda config, finished: None)
    told, begun = None, set()
    for axes, config in listed:
        path = default_path(Path(_WORKDIR.value), config)
        if path in begun:  # two cells can be one run
            continue
        begun.add(path)
        done = (path / "result.json").exists()
        reason = None if done else unneeded(config, finished)
        if reason is None:
            say(f"{'skip, has a result' if done else 'run'}: {name}:{axes} -> {path}")
        elif reason != told:
            say(f"skip, not needed: {name}:{axes}: {reason}")
        told = reason
        if done:
            finished.append(load_results([path])[0].content)
        elif not (reason or _DRY_RUN.value):
            yield axes, config, path


def run_in_process(arguments: list[str], path: Path, running: set[subprocess.Popen]) -> dict:
    """The result.json content of experiments.run with these arguments, run in its own process.

    While the process is there it is among those `running`; it ends with this one. Raises Diverged and UserError as the
    run does; also UserError where the process was killed.
    """
    command = [sys.executable, "-m", "experiments.run", *arguments]
    pipes = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with subprocess.Popen(command, **pipes, env=ending.environment_of_children()) as process:
        running.add(process)
        said = process.communicate()[1].strip()
        running.discard(process)
    if process.returncode:
        kind = Diverged if process.returncode == Diverged.exit_code else UserError
        told = said.splitlines()[-1].removeprefix("error: ") if said else ""
        raise kind(told or f"the process ended with {process.returncode}")
    return load_results([path])[0].content


if __name__ == "__main__":
    sys.exit(main(sys.argv))
