"""Every config file in all its presets."""

import importlib
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import common
from experiments.harness.launch import split_evaluation
from experiments.harness.loop import TrainSettings
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.settings import build
from experiments.harness.step import make_init, make_step
from experiments.intention import few_shot_regression

ROOT = Path(__file__).parents[2]
MODULES = [
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted((ROOT / "configs").glob("*/*.py"))
    if path.name != "__init__.py"
]
PRESETS = [(module, preset) for module in MODULES for preset in module.PRESETS]


@pytest.mark.parametrize("module, preset", PRESETS, ids=lambda x: getattr(x, "__name__", x))
def test_every_cell_says_all_that_its_settings_ask_for(module, preset):
    for axes in module.sweep():
        axes = axes | {"preset": preset}
        config = module.get_config(",".join(f"{axis}={value}" for axis, value in axes.items()))
        settings = build(TrainSettings, config.train, "config.train")
        build_optimizer(build(OptimizerSettings, config.optimizer, "config.optimizer"), settings.steps)
        split_evaluation(config.evaluation)
        assert config.name == module.__name__.removeprefix("configs.").replace(".", "/")
        assert axes.items() <= config.axes.to_dict().items()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_index_lists_every_config_and_its_command(module):
    index = (ROOT / "configs" / "README.md").read_text()
    file = module.__name__.replace(".", "/") + ".py"
    assert f"--config {file}" in index and f"--config {file}" in inspect.getdoc(module)


PAPER = [(module, model) for module in MODULES for model in getattr(module, "MODELS", ())]
# The axes of data that need no download, where `paper` has others.
WITHOUT_DATA = {"configs.intention.anomaly": ",source=digits,features=raw_pixels_pca"}
# The networks of these are those of gp, whose two steps are made; here only the first model makes them.
SAME_NETWORKS = {"configs.neural_processes.analyses", "configs.neural_processes.wheel"}


@pytest.mark.parametrize("module, model", PAPER, ids=lambda x: getattr(x, "__name__", x))
def test_two_steps_of_the_paper_preset_at_full_width(module, model, monkeypatch):
    """The published widths and numbers of points, two tasks in a batch, on 28x28 images of noise where the task has images.

    Where the same networks make their steps in another config, the step is traced, which checks shapes and settings.
    """
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    noise = dict.fromkeys(("train", "validation", "test"), images)
    load = few_shot_regression._load
    monkeypatch.setattr(
        few_shot_regression, "_load", lambda section, folder: (noise, {}) if section else load(section, folder)
    )
    config = module.get_config(f"model={model},preset=paper{WITHOUT_DATA.get(module.__name__, '')}")
    code = importlib.import_module(f"experiments.{config.experiment}")
    experiment = code.build(config, split_evaluation(config.evaluation)[1], None)
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), config.train.steps)
    init = make_init(experiment, optimizer)
    step = make_step(experiment, optimizer, min(2, config.train.batch_size))
    if module.__name__ in SAME_NETWORKS and model != module.MODELS[0]:
        _, metrics = jax.eval_shape(step, jax.eval_shape(init, jnp.uint32(0)), experiment.data["train"])
        assert metrics["loss"].shape == ()
        return
    quick_to_compile = dict(compiler_options={"xla_backend_optimization_level": 0})
    state = jax.jit(init, **quick_to_compile)(jnp.uint32(0))
    step = jax.jit(step, donate_argnums=0, **quick_to_compile)
    for _ in range(2):
        state, metrics = step(state, experiment.data["train"])
        assert np.isfinite(metrics["loss"])


@pytest.mark.parametrize(
    "arg, message",
    [("model", "unknown model ''"), ("modle=a", "did you mean 'model'"), ("model=b ,preset=x", "unknown model 'b '")],
)
def test_axes_are_checked(arg, message):
    with pytest.raises(ValueError, match=message):
        common.parse_axes(arg, model=("a", "b"), preset=("x",))


def test_axes_default_to_their_first_value():
    assert common.parse_axes(None, model=("a", "b")) == {"model": "a"}
    assert common.parse_axes("model=b", model=("a", "b")) == {"model": "b"}


def test_unknown_optimizer_fields_are_refused():
    with pytest.raises(ValueError, match="did you mean 'momentum'"):
        common.optimizer("sgd", 0.1, momentun=0.9)


def test_the_ridge_of_an_informer_stays_where_its_system_is_definite():
    assert common.ridge("intention", 0.1) == dict(alpha_kind="softplus", alpha=0.1)
    assert common.ridge("sigma_informer", 0.1) == dict(alpha_kind="sigmoid", alpha=0.5)
    assert set(common.OPS) >= {"informer", "sigma_informer"}
