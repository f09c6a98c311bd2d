"""The cells of a sweep: what a config lists, times what the command line asks for beside it."""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from experiments.harness import config_files
from experiments.harness.errors import ConfigError
from experiments.harness.loop import TrainSettings
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.run_directory import default_path
from experiments.harness.settings import build

# One choice of a grid or a search: axis -> value, and config key -> value; config keys have a dot, axes have none.
Point = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a sweep.

    Attributes:
      axes: 'axis=value,...', as they follow the colon of --config.
      overrides: config key -> value that the command line changes, sorted by key.
      config: with both.
    """

    axes: str
    overrides: Mapping[str, Any]
    config: ConfigDict

    @property
    def text(self) -> str:
        """The cell as a line tells it: its axes, then its overrides."""
        return " ".join([self.axes, *(f"{key}={value}" for key, value in self.overrides.items())])

    @property
    def overrides_as_stored(self) -> dict[str, Any]:
        """Its overrides as its result.json has them: lists for tuples."""
        return json.loads(json.dumps(dict(self.overrides)))

    def folder(self, root: Path) -> Path:
        """Its run folder below `root`."""
        return default_path(root, self.config, self.overrides)

    def arguments(self, file: str, path: Path, data_dir: str | None) -> list[str]:
        """The command line of experiments.run that runs this cell of a config file in the folder `path`."""
        changed = [f"--config.{key}={value}" for key, value in self.overrides.items()]
        data = [f"--data_dir={data_dir}"] if data_dir else []
        return [f"--config={file}:{self.axes}", *changed, *data, f"--workdir={path}"]


def cells(
    module: ModuleType, arg: str, overrides: Mapping[str, Any], function: str = "sweep", points: Sequence[Point] = ({},)
) -> Iterator[Cell]:
    """Each cell that a function of a config module lists and neither `arg` nor a point excludes, at every point.

    Args:
      module: of a config file.
      arg: axes 'axis=value,...': a cell that gives one of them another value is left out, other cells take it over.
      overrides: config key -> value, for every cell.
      function: of `module`; lists the cells, each as axis -> value.
      points: their axes choose as `arg` does, their config keys are overrides.

    Raises:
      ConfigError: an axis or key that is unknown to one of the cells or given twice, a point without a cell, or a
        function that fails or lists no cells.
    """
    parts = [part.partition("=")[::2] for part in filter(None, arg.split(","))]
    given = dict(parts)
    if len(given) < len(parts):
        raise ConfigError(f"an axis is given twice: {arg}")
    listed = _listed(module, function)
    splits = [_split(point, given, overrides) for point in points]
    for own, _ in splits:
        if not any(_fits(axes, given | own) for axes in listed):
            asked = ",".join(f"{name}={value}" for name, value in (given | own).items())
            raise ConfigError(f"no cell of {function}() in {module.__file__} has {asked}")
    for axes in listed:
        for own, changes in splits:
            if _fits(axes, given | own):
                text = ",".join(f"{name}={value}" for name, value in (given | own | axes).items())
                yield _cell(module, text, dict(sorted((overrides | changes).items())))


def _listed(module: ModuleType, function: str) -> list[dict[str, Any]]:
    """What a function of a config module lists. Raises ConfigError where it fails or is no list of cells."""
    file = Path(module.__file__)
    with config_files.blamed(file):
        listed = list(getattr(module, function)())
    for axes in listed:
        if not isinstance(axes, dict):
            raise ConfigError(f"{file}: {function}() lists {axes!r}, expected dicts of axes")
    return listed


def _split(point: Point, given: Mapping[str, str], overrides: Mapping[str, Any]) -> tuple[dict[str, str], dict]:
    """The axes of a point and its overrides. Raises ConfigError for a key that --config gives too."""
    for key in point.keys() & (given.keys() | overrides.keys()):
        raise ConfigError(f"{key} is given twice: with --config, and in the grid or space")
    axes = {key: str(value) for key, value in point.items() if "." not in key}
    return axes, {key: value for key, value in point.items() if "." in key}


def _fits(axes: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all(str(axes[name]) == wanted[name] for name in axes.keys() & wanted.keys())


def _cell(module: ModuleType, text: str, overrides: dict[str, Any]) -> Cell:
    config, where = config_files.config_of(module, text), f"{module.__file__}:{text}"
    for key, value in overrides.items():
        try:
            config_files.type_of(config, key)
            config.update_from_flattened_dict({key: value})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{where}: {key}={value}: {error}") from error
    try:
        _check(config)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    taken = {key: functools.reduce(getattr, key.split("."), config) for key in overrides}  # 1 as 1.0, say
    return Cell(text, {key: config_files.plain(value) for key, value in taken.items()}, config)


def _check(config: ConfigDict) -> None:
    """Raises ConfigError for what a training refuses before it reads data."""
    if "train" in config:
        settings = build(TrainSettings, config.train, "config.train")
        build_optimizer(build(OptimizerSettings, config.optimizer, "config.optimizer"), settings.steps)
