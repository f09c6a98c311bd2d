"""Every config file in all its presets."""
import importlib
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import common
from experiments.harness.launch import EvaluationSettings
from experiments.harness.loop import TrainSettings
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.settings import build
from experiments.harness.step import make_init, make_step
from kvq_jax.models import FEW_SHOT_REGRESSORS

ROOT = Path(__file__).parents[2]
MODULES = [
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted((ROOT / "configs").glob("*/*.py"))
    if path.name != "__init__.py"
]
CELLS = [
    (module, ",".join(f"{axis}={value}" for axis, value in (axes | {"preset": preset}).items()))
    for module in MODULES
    for preset in module.PRESETS
    for axes in module.sweep()
]


@pytest.mark.parametrize("module, arg", CELLS, ids=lambda x: getattr(x, "__name__", x))
def test_every_cell_says_all_that_its_settings_ask_for(module, arg):
    config = module.get_config(arg)
    settings = build(TrainSettings, config.train, "config.train")
    build_optimizer(build(OptimizerSettings, config.optimizer, "config.optimizer"), settings.steps)
    shared = EvaluationSettings.__dataclass_fields__
    build(EvaluationSettings, {k: v for k, v in config.evaluation.items() if k in shared}, "config.evaluation")
    assert config.name == module.__name__.removeprefix("configs.").replace(".", "/")
    assert config.axes.preset in arg


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_index_lists_every_config_and_its_command(module):
    index = (ROOT / "configs" / "README.md").read_text()
    file = module.__name__.replace(".", "/") + ".py"
    assert f"--config {file}" in index and f"--config {file}" in inspect.getdoc(module)


PAPER = [(module, model) for module in MODULES for model in getattr(module, "MODELS", ())]


@pytest.mark.parametrize("module, model", PAPER, ids=lambda x: getattr(x, "__name__", x))
def test_two_steps_of_the_paper_preset_at_full_width(module, model):
    """The published widths and numbers of points, two tasks in a batch, on 28x28 images of noise where the task has images."""
    config = module.get_config(f"model={model},preset=paper")
    task = config.task.to_dict()
    width_of_x = 1 if task["name"] == "sine" else 2
    targets, context = (task["targets"], task["max_context"]) if task["name"] == "sine" else (784, 264)
    section = config.model.to_dict()
    network = FEW_SHOT_REGRESSORS[section.pop("name")](**section)
    step = _two_steps(network, config, context, targets, width_of_x)
    losses = step()
    assert np.isfinite(losses).all() and len(losses) == 2


def _two_steps(network, config, context, targets, width_of_x):
    from experiments.harness.experiment import Experiment

    def sample(key, data):
        keys = jax.random.split(key, 3)
        x = jax.random.uniform(keys[0], (targets, width_of_x), minval=-1, maxval=1)
        y = jax.random.uniform(keys[1], (targets, 1))
        return x[:context], y[:context], jnp.ones(context, bool), x, y

    def init(key):
        *arguments, _ = sample(key, None)
        return network.init(key, *arguments)

    def loss(variables, batch, key):
        *arguments, y = batch
        return jnp.mean((network.apply(variables, *arguments) - y) ** 2), ({}, {})

    experiment = Experiment(init, sample, loss, None, None, {}, None, None)
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), config.train.steps)

    def run():
        state, losses = jax.jit(make_init(experiment, optimizer))(jnp.uint32(0)), []
        step = jax.jit(make_step(experiment, optimizer, 2), donate_argnums=0)
        for _ in range(2):
            state, metrics = step(state, None)
            losses.append(float(metrics["loss"]))
        return losses

    return run


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
