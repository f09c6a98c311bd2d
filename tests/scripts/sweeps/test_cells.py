"""The cells of a sweep: axes, overrides, grids and spaces, and what is wrong with them, told before anything runs."""

import fcntl
import math
import sys
import threading
import time
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from configs.intention import scaling, sine
from experiments.harness import config_files
from experiments.harness.errors import ConfigError, Diverged, UserError
from experiments.harness.run_directory import config_hash, default_path
from scripts.sweeps import cluster, space
from scripts.sweeps.cells import cells
from scripts.sweeps.processes import Broken, Ended, result_of, wait_until_free

RATE, SEED = "optimizer.learning_rate", "train.seed"


def names(found) -> list[str]:
    return [cell.text for cell in found]


def test_a_grid_is_a_cross_product_of_literals_and_texts():
    assert space.grid([]) == [{}]
    assert space.grid(["a.b=1,2", "c.d=x,'y,z'"]) == [
        {"a.b": 1, "c.d": "x"},
        {"a.b": 1, "c.d": "y,z"},
        {"a.b": 2, "c.d": "x"},
        {"a.b": 2, "c.d": "y,z"},
    ]
    (point,) = space.grid(["a.b=(1, (2, 3))"])
    assert point == {"a.b": (1, (2, 3))}
    assert [point["a.b"] for point in space.grid(["a.b=1e-3,None,[1, 2],True"])] == [0.001, None, [1, 2], True]


def test_axes_choose_and_keys_override():
    points = space.grid([f"{RATE}=1,1e-4", f"{SEED}=0,1", "model=maml,intention"])
    found = list(cells(sine, "preset=tiny", {"train.steps": 20}, points=points))
    assert len(found) == len({cell.folder(Path("runs")) for cell in found}) == 8
    assert [(cell.config.axes.model, cell.overrides[RATE], cell.overrides[SEED]) for cell in found] == [
        (model, rate, seed) for model in ("intention", "maml") for rate in (1.0, 1e-4) for seed in (0, 1)
    ]
    assert all(type(cell.overrides[RATE]) is float for cell in found), "as the config takes it: 1 as 1.0"
    assert {cell.config.train.steps for cell in found} == {20} and list(found[0].overrides) == [
        RATE,
        SEED,
        "train.steps",
    ]
    again = list(cells(sine, "preset=tiny", {"train.steps": 20}, points=space.grid(["model=maml", f"{SEED}=0,1"])))
    assert names(again) == [f"preset=tiny,model=maml train.seed={seed} train.steps=20" for seed in (0, 1)]


def test_an_axis_that_the_cells_leave_open_multiplies_them():
    two = names(cells(sine, "model=maml", {}, points=space.grid(["preset=tiny,quick"])))
    assert two == ["model=maml,preset=tiny", "model=maml,preset=quick"]
    assert names(cells(sine, "model=intention,preset=tiny", {})) == ["model=intention,preset=tiny"]
    one = list(cells(scaling, "preset=tiny", {}, points=[{"size": 4, "dimension": 2, "model": "mlp"}]))
    assert [cell.config.axes.to_dict() for cell in one] == [
        {"model": "mlp", "dimension": "2", "size": "4", "preset": "tiny"}
    ]


@pytest.mark.parametrize(
    "grid, message",
    [
        (["model=cosine"], "no cell of sweep() in .* has preset=tiny,model=cosine"),
        (["modle=maml"], "unknown axis 'modle': did you mean 'model'"),
        (["optimizer.learning_rat=1"], "unknown key of config.optimizer 'learning_rat': did you mean 'learning_rate'"),
        (["optimizer.clip=1"], "unknown key of config.optimizer 'clip'"),
        (["axes.model=maml"], "config.axes.model: says what the config is"),
        (["train.steps=20,many"], "train.steps=many"),
        (["train.steps=20.5"], "train.steps=20.5"),
        (["preset=tiny"], "preset is given twice"),
        (["train.batch_size=2"], "train.batch_size is given twice"),
        (["train.steps=1", "train.steps=2"], "train.steps is given twice"),
        (["train.steps=1,1"], "train.steps has a value twice"),
        (["train.steps"], "expected KEY=V1,V2"),
        (["train.steps="], "expected KEY=V1,V2"),
        (["=3"], "expected KEY=V1,V2"),
        (["train.steps=1,,2"], "expected KEY=V1,V2"),
        (["model=maml", "model=intention"], "model is given twice"),
    ],
)
def test_a_grid_that_does_not_fit_is_one_line(grid, message):
    with pytest.raises(UserError, match=message.replace("()", r"\(\)")) as raised:
        list(cells(sine, "preset=tiny", {"train.batch_size": 4}, points=space.grid(grid)))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("function", ["listless", "texts", "wanting", "broken"])
def test_what_lists_the_cells_is_blamed_for_its_failures(function, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from configs.intention.sine import get_config\n\n"
        "listless = lambda: 3\ntexts = lambda: ['model=maml']\nwanting = lambda axes: []\nbroken = lambda: [1 / 0]\n"
    )
    module = config_files.load(tmp_path / "mine.py", function)
    with pytest.raises(ConfigError, match="mine.py") as raised:
        list(cells(module, "preset=tiny", {}, function))
    assert len(str(raised.value).splitlines()) == 1


def test_a_folder_tells_its_overrides_and_one_without_keeps_its_name():
    config = sine.get_config("model=maml,preset=tiny")
    plain = default_path(Path("runs"), config, {})
    assert plain == Path("runs/intention/sine") / f"maml-tiny-{config_hash(config)[:8]}"
    told = {SEED: 3, RATE: 1e-4, "evaluation.counts": (1, 5), "data.folder": "../a b/ü"}
    name = default_path(Path("runs"), config, told).name
    assert name == f"maml-tiny-folder=.._a_b-counts=1_5-learning_rate=0.0001-seed=3-{config_hash(config)[:8]}"
    assert name == default_path(Path("runs"), config, dict(reversed(told.items()))).name
    long = default_path(Path("runs"), config, {f"a.key_{number}": "x" * 30 for number in range(9)}).name
    assert long.count("key_") == 2 and len(long) < 140


def write(folder: Path, text: str) -> Path:
    (folder / "space.py").write_text(text)
    return folder / "space.py"


def test_points_at_random_are_the_same_each_time(tmp_path):
    pytest.importorskip("optuna")
    lines = (
        "def suggest(trial):",
        "    rate = trial.suggest_float('rate', 1e-5, 1e-1, log=True)",
        "    width = trial.suggest_categorical('model', ['maml', 'attention'])",
        f"    return {{'{RATE}': rate, 'model': width}}",
    )
    suggest = space.suggest_of(write(tmp_path, "\n".join(lines)))
    ten, four = space.drawn(suggest, 10, seed=1), space.drawn(suggest, 4, seed=1)
    assert ten[:4] == four and space.drawn(suggest, 4, seed=2) != four
    assert all(1e-5 <= point[RATE] <= 1e-1 for point in ten) and {point["model"] for point in ten} == {
        "maml",
        "attention",
    }
    found = list(cells(sine, "preset=tiny", {}, points=space.crossed(space.grid([f"{SEED}=0,1"]), ten)))
    assert len(found) == 20 and {cell.config.axes.model for cell in found} == {"maml", "attention"}
    with pytest.raises(UserError, match="model is in the grid and in the space"):
        space.crossed(space.grid(["model=maml"]), ten)


@pytest.mark.parametrize(
    "text, message",
    [
        ("suggest = lambda trial: 1 / 0", "space.py:1: ZeroDivisionError"),
        ("suggest = lambda trial: 3", "suggest.. returns a int, expected a dict"),
        ("def propose(trial): pass", "does not define suggest"),
        ("\n\ndef suggest(", "space.py:3: SyntaxError"),
        ("import sys\nsys.exit()", "space.py:2: SystemExit"),
    ],
)
def test_a_space_that_cannot_be_used_is_one_line(text, message, tmp_path):
    pytest.importorskip("optuna")
    with pytest.raises(UserError, match=message):
        space.drawn(space.suggest_of(write(tmp_path, text)), 1, seed=0)
    with pytest.raises(UserError, match="no file"):
        config_files.definitions(tmp_path / "other.py", "suggest")


@pytest.mark.parametrize("package, needing", [("optuna", "--space"), ("submitit", "--cluster")])
def test_a_package_that_is_missing_is_one_line(package, needing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=f"^{needing} needs {package}: python -m pip install"):
        space.import_optuna() if package == "optuna" else cluster.Cluster.of("local", tmp_path)


@pytest.mark.parametrize(
    "code, said, kind, message",
    [
        (2, "note: x\nerror: config.train.steps: no", UserError, "^config.train.steps: no$"),
        (3, "error: the loss is not finite", Diverged, "^the loss is not finite$"),
        (-9, "", Broken, "ended with -9"),
        (1, "error: ValueError: no", Broken, "^ValueError: no$"),
        (-15, "", Ended, "ended with -15"),
        (143, "error: SIGTERM", Ended, "SIGTERM"),
        (130, "", Ended, "130"),
    ],
)
def test_the_end_of_a_process_is_told_as_it_was(code, said, kind, message, tmp_path):
    with pytest.raises(kind, match=message) as raised:
        result_of(code, said, tmp_path)
    assert type(raised.value) is kind and not isinstance(raised.value, ConfigError)


def test_a_folder_in_use_is_waited_for_and_not_for_ever(tmp_path):
    """A process of a killed sweep leaves after 0.3 s; another stays: the run then says itself that it is there."""
    wait_until_free(tmp_path, 60)
    for stays, patience in ((0.3, 60), (60, 0.3)):
        with (tmp_path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            leaving = threading.Timer(stays, fcntl.flock, (lock, fcntl.LOCK_UN))
            leaving.start()
            begun = time.monotonic()
            wait_until_free(tmp_path, patience)
            assert 0.25 < time.monotonic() - begun < 50
            leaving.cancel()
            leaving.join()


def test_who_waits_for_a_folder_can_be_called_off(tmp_path):
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        looks = iter([None, Ended("the sweep was stopped")])

        def watch():
            if error := next(looks):
                raise error

        with pytest.raises(Ended, match="the sweep was stopped"):
            wait_until_free(tmp_path, math.inf, watch)


def test_values_of_the_config_are_checked_for_every_cell_first():
    """The second of two cells is bad: nothing is yielded to a caller that lists them, as the sweep does."""
    points = [{SEED: 0}, {SEED: "first"}]
    with pytest.raises(ConfigError, match="train.seed=first"):
        list(cells(sine, "preset=tiny,model=maml", {}, points=points))
    assert isinstance(next(cells(sine, "preset=tiny,model=maml", {}, points=points[:1])).config, ConfigDict)


@pytest.mark.parametrize("key, value", [("train.steps", 45), ("train.steps", 0), ("optimizer.warmup_steps", 50)])
def test_what_a_training_refuses_is_refused_before_any(key, value):
    points = [{SEED: 0}, {key: value}]
    with pytest.raises(ConfigError, match=f"{key.split('.')[1]}.*{value}"):
        list(cells(sine, "preset=tiny,model=maml", {}, points=points))
