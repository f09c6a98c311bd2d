"""Runs every cell of a config that has no result yet: python -m scripts.sweep --config configs/<paper>/<experiment>.py

The cells are those of the config's sweep(), or of its function figure14() with --cells figure14. Axes given with the
config choose among them: `:model=intention,preset=quick` runs only the cells of that model. Each cell is a run of its
own, as experiments.run makes it, and resumes if it was killed. If a cell fails, it is reported and the others go on;
the exit code is then that of the last failure. The same command reports it again and leaves it alone: --retry_failed
runs it, from its last checkpoint. --dry_run lists the cells and runs nothing.

    --grid optimizer.learning_rate=1e-3,1e-4 --grid train.seed=0,1 --grid model=intention,maml    # each with each
    --space FILE.py --random 20                      # 20 points at random, of what suggest(trial) of a file draws
    --space FILE.py --study NAME --storage studies.log --trials 50 --metric trained/mse@5     # Optuna; also a database

A key with a dot is one of the config, another is an axis, whose values choose among the cells. All cells are checked
before any runs, and a table of them is printed at the end. A sweep or study that was killed goes on when its command is
given again; many processes may share a study.

--workers 4 runs four cells at a time, each in its own process on a quarter of the cores, with the results of one at a
time to the bit. On a CPU that makes more steps in all: small models gain little from a second core. On accelerators one
run already uses the device. --cluster FILE.py submits each cell as a job of SLURM (scripts/sweeps/cluster.py),
--cluster local as a process.

A config may define unneeded(config, finished) -> str | None: the reason to leave a cell out, given the result.json
contents of all cells of this sweep with the same overrides that have finished. Cells run in the order of sweep(), so a
search can end once it succeeds (with several workers, later cells may have begun by then). Consecutive cells left out
for one reason are reported once.
"""

import concurrent.futures
import functools
import math
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import jax
from absl import flags
from ml_collections import config_flags

from experiments import catalogue
from experiments.harness import command_line, config_files, launch, placement
from experiments.harness.errors import UserError
from experiments.harness.results import load_results
from experiments.harness.tables import Table
from scripts.sweeps import cluster, failures, processes, space, study, varied
from scripts.sweeps.cells import Cell, Point, cells
from scripts.sweeps.processes import Ended

_CONFIG = config_flags.DEFINE_config_file("config", help_string="config file; axes given here choose among the cells")
_WORKDIR = flags.DEFINE_string("workdir", "runs", "folder of the run folders")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of the original data archives, or of prepared TFDS data")
_CELLS = flags.DEFINE_string("cells", "sweep", "the function of the config file that lists the cells")
_WORKERS = flags.DEFINE_integer(
    "workers", None, "cells at a time, each on its share of the cores; default 1, on a cluster all", lower_bound=1
)
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "list the cells, run nothing")
_RETRY = flags.DEFINE_bool("retry_failed", False, "run cells again that failed before")
_GRID = flags.DEFINE_multi_string(
    "grid", [], "KEY=V1,V2: every cell with each of these values of an axis or config key"
)
_SPACE = flags.DEFINE_string("space", None, "Python file with suggest(trial) -> {key: value}, for --random or --study")
_RANDOM = flags.DEFINE_integer("random", None, "points to draw from the space, for every cell", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "of what is drawn from the space", lower_bound=0)
_STUDY = flags.DEFINE_string("study", None, "name of an Optuna study that searches the space")
_STORAGE = flags.DEFINE_string("storage", None, "where studies are kept: a file, or the URL of a database")
_TRIALS = flags.DEFINE_integer("trials", None, "trials of the study, in all processes that share it", lower_bound=1)
_METRIC = flags.DEFINE_string("metric", None, "what the study minimises, such as trained/mse@5; of tables")
_MAXIMISE = flags.DEFINE_bool("maximise", False, "maximise the metric")
_PRUNE = flags.DEFINE_bool("prune", True, "end trials whose validation loss is above the median of earlier ones")
_CLUSTER = flags.DEFINE_string("cluster", None, "submit each cell as a job: 'local', or a Python file with PARAMETERS")


def main(argv: list[str]) -> int:
    """Runs the command line `argv` and returns its exit code."""
    failed: list[int] = []
    code = command_line.guarded(lambda argv: _sweep(argv, failed), argv)
    return code or (failed[-1] if failed else 0)


def _sweep(argv: list[str], failed: list[int]) -> None:
    command_line.parse_config(argv, _CONFIG)
    flag = flags.FLAGS["config"]
    name, _, arg = config_flags.get_config_filename(flag).partition(":")
    overrides, root = command_line.overrides(), Path(_WORKDIR.value)
    console = command_line.console()
    say = functools.partial(console.print, soft_wrap=True, highlight=False, markup=False)
    module = config_files.load(Path(name), _CELLS.value)
    cells_of = functools.partial(cells, module, arg, overrides, _CELLS.value)  # of points
    _check_flags()
    listed = [] if _STUDY.value else list(cells_of(_points()))
    jobs = cluster.Cluster.of(_CLUSTER.value, root / ".jobs") if _CLUSTER.value else None
    ending_now = threading.Event()

    def here(cell: Cell, path: Path) -> dict:
        options = launch.Options(data_dir=_DATA_DIR.value, overrides=cell.overrides)
        return launch.launch(cell.config, path, options, console, catalogue.show).content

    def go_on() -> None:
        if ending_now.is_set():
            raise Ended("the sweep was stopped")

    def elsewhere(cell: Cell, path: Path, watch: Callable[[], None] = go_on) -> dict:
        arguments = cell.arguments(name, path, _DATA_DIR.value)
        # Two trials of a study may draw one point, and are one run.
        patience = math.inf if _STUDY.value else processes.PATIENCE_S
        run = jobs.run if jobs else functools.partial(processes.run_in_process, patience_s=patience)
        content = run(arguments, path, watch)
        say(f"done in {content['wall_time_s']:.0f} s: {name}:{cell.text}")
        return content

    if _STUDY.value:
        console.print(_search(cells_of, root, elsewhere, jobs, say).terminal())
        return
    finished: list[dict] = []
    pending, lock = _pending(module, name, listed, finished, failed, say), threading.Lock()

    def work(run: Callable[[Cell, Path], dict]) -> None:
        while True:
            with lock:
                cell = next(pending, None)
            if cell is None:
                return
            failures.forget(root, cell[1])
            try:
                finished.append(run(*cell))
            except Exception as error:  # of one cell, whatever it is: the others go on
                if ending_now.is_set():
                    return
                told, code = command_line.ending_of(error, argv)
                print(f"error: {cell[0].text}: {told}", file=sys.stderr)
                failed.append(code)
                failures.remember(root, cell[1], error, told, code)

    if not jobs and (_WORKERS.value or 1) == 1:
        jax.devices()  # a platform that is not there is no failure of a cell
        work(here)
    else:
        shares = _shares(_WORKERS.value or len(listed), jobs)
        with concurrent.futures.ThreadPoolExecutor(len(shares)) as executor:
            workers = [executor.submit(placement.on_cores(share)(work), elsewhere) for share in shares]
            try:
                for worker in workers:
                    worker.result()
            finally:  # no worker may take another cell, and processes end; jobs of a cluster go on
                ending_now.set()
                with lock:
                    pending.close()
    if (_GRID.value or _RANDOM.value) and not _DRY_RUN.value:
        console.print(varied.table([varied.of_cell(cell, root) for cell in listed], _METRIC.value).terminal())


def _check_flags() -> None:
    """Raises UserError for flags that need each other or exclude each other."""
    given = lambda name: bool(flags.FLAGS[name].value)
    for name, others in {"random": ("space",), "study": ("space", "storage", "trials", "metric")}.items():
        missing = [other for other in others if not given(other)]
        if given(name) and missing:
            raise UserError(f"--{name} needs --{missing[0]}")
    if given("study") and (given("random") or given("grid") or given("dry_run") or given("retry_failed")):
        raise UserError("--study goes with none of --random, --grid, --dry_run and --retry_failed")
    if not given("study"):
        of_study = [name for name in ("trials", "storage", "maximise") if given(name)]
        of_study += [] if given("prune") else ["noprune"]
        if of_study:
            raise UserError(f"--{of_study[0]} needs --study")
        if given("metric") and not (given("grid") or given("random")):
            raise UserError("--metric needs --study, --grid or --random")
    if given("space") and not (given("study") or given("random")):
        raise UserError("--space needs --random or --study")


def _points() -> list[Point]:
    """What --grid and --random ask of every cell. Raises UserError."""
    drawn = [{}]
    if _RANDOM.value:
        drawn = space.drawn(space.suggest_of(Path(_SPACE.value)), _RANDOM.value, _SEED.value)
    return space.crossed(space.grid(_GRID.value), drawn)


def _search(
    cells_of: Callable[..., Iterator[Cell]], root: Path, run: study.Run, jobs: cluster.Cluster | None, say: Callable
) -> Table:
    """The trials of the study that the flags describe, run as far as they are missing."""

    def cell_of(point: Point) -> tuple[Cell, Path]:
        found = list(cells_of([point]))
        if len(found) > 1:
            raise UserError(
                f"a trial is one cell, not {len(found)}: give the axes that tell them apart: {found[0].axes}"
            )
        return found[0], found[0].folder(root)

    workers = _WORKERS.value or 1
    shares: queue.SimpleQueue = queue.SimpleQueue()
    for share in _shares(workers, jobs):
        shares.put(share)

    def on_a_share(cell: Cell, path: Path, watch: study.Watch) -> dict:
        share = shares.get()
        try:
            return placement.on_cores(share)(run)(cell, path, watch)
        finally:
            shares.put(share)

    search = study.Search(
        _STUDY.value, _TRIALS.value, _METRIC.value, _MAXIMISE.value, _PRUNE.value, _SEED.value, workers
    )
    suggest = space.suggest_of(Path(_SPACE.value))
    study.rehearse(suggest, cell_of, _SEED.value)
    return study.optimise(search, study.storage_of(_STORAGE.value), suggest, cell_of, on_a_share, say)


def _shares(workers: int, jobs: cluster.Cluster | None) -> list[set[int]]:
    """The cores of each worker; those that only wait for jobs need none of their own. Raises UserError."""
    return placement.shares_of_cores(1) * workers if jobs else placement.shares_of_cores(workers)


def _pending(
    module: ModuleType, name: str, listed: list[Cell], finished: list[dict], failed: list[int], say: Callable
) -> Iterator[tuple[Cell, Path]]:
    """(cell, run folder) of each cell to run.

    Says what becomes of each cell. Adds results to `finished`, exit codes of cells that are left alone to `failed`.
    """
    unneeded, file = getattr(module, "unneeded", lambda config, finished: None), Path(module.__file__)
    told, begun, root = None, set(), Path(_WORKDIR.value)
    for cell in listed:
        path = cell.folder(root)
        if path in begun:  # two cells can be one run
            continue
        begun.add(path)
        done = (path / "result.json").exists()
        alike = [content for content in finished if content.get("overrides", {}) == cell.overrides_as_stored]
        with config_files.blamed(file):
            reason = None if done else unneeded(cell.config, alike)
        before = None if done or reason or _RETRY.value else failures.remembered(root, path)
        if before:
            say(f"skip, failed before: {name}:{cell.text}: {before.said} (--retry_failed runs it again)")
            failed.append(before.code)
        elif reason is None:
            say(f"{'skip, has a result' if done else 'run'}: {name}:{cell.text} -> {path}")
        elif reason != told:
            say(f"skip, not needed: {name}:{cell.text}: {reason}")
        told = reason
        if done:
            try:
                finished.append(load_results([path])[0].content)
            except UserError as error:  # of one cell: the others go on
                print(f"error: {cell.text}: {error} (with its folder moved away, it runs again)", file=sys.stderr)
                failed.append(error.exit_code)
        elif not (reason or before or _DRY_RUN.value):
            yield cell, path


if __name__ == "__main__":
    sys.exit(main(sys.argv))
