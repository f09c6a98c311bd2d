"""Every config file in all its presets."""

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from configs import common
from configs.kvq import operators
from experiments.harness.launch import split_evaluation
from experiments.harness.loop import TrainSettings
from experiments.harness.optimizer import OptimizerSettings, build_optimizer
from experiments.harness.settings import build, check_sections
from experiments.harness.size_classes import choose_classes
from experiments.harness.step import make_init, make_step
from experiments.regression import experiment as regression
from kvq_jax.fields import knobs_of
from kvq_jax.models import (
    CLASSIFIERS,
    EVENT_MODELS,
    IMAGE_CLASSIFIERS,
    IMAGE_SET_DETECTORS,
    IMAGE_SET_NETWORKS,
    MODELS,
    SET_CLASSIFIERS,
    SET_NETWORKS,
    TARGET_REGRESSORS,
    WEIGHT_REGRESSORS,
    SetAnomalyDetector,
)
from kvq_jax.nn import ENCODERS
from kvq_jax.ops import OPERATORS
from tests.kvq_jax.nn.drawing import drawn

ROOT = Path(__file__).parents[2]
MODULES = [
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted((ROOT / "configs").glob("*/*.py"))
    if path.name != "__init__.py"
]
CELLS = [(module, preset) for module in MODULES for preset in common.PRESETS]
SHARED = {"name", "experiment", "axes"}
TRAINED = {"train", "optimizer", "evaluation"}
# Experiment -> its models, where they are not those of MODELS.
TABLES = {
    "intention.scaling": WEIGHT_REGRESSORS,
    "point_processes.events": EVENT_MODELS,
    "intention.few_shot_classification": CLASSIFIERS,
    "set_transformer.max": SET_NETWORKS,
    "set_transformer.clustering": SET_NETWORKS,
    "set_transformer.clusters": SET_NETWORKS,
    "set_transformer.features": SET_NETWORKS,
    "set_transformer.encoder": IMAGE_CLASSIFIERS,
    "set_transformer.clouds": SET_CLASSIFIERS,
    "set_transformer.counting": IMAGE_SET_NETWORKS,
    "set_transformer.anomaly": IMAGE_SET_DETECTORS,
}


OF_DATA = ("num_marks", "time_scale", "log_mean", "log_std")  # fields of a model of events that data set


@functools.cache
def cells_of(module, preset) -> list:
    cells = [axes | {"preset": preset} for axes in module.sweep()]
    return [(axes, module.get_config(",".join(f"{axis}={value}" for axis, value in axes.items()))) for axes in cells]


def sections_of(config) -> set:
    return set(importlib.import_module(f"experiments.{config.experiment}.experiment").SECTIONS)


@pytest.mark.parametrize("module, preset", CELLS, ids=lambda x: getattr(x, "__name__", x))
def test_every_cell_says_all_that_its_settings_ask_for(module, preset):
    for axes, config in cells_of(module, preset):
        trained = TRAINED if "train" in config else set()  # nothing is trained where something is measured
        check_sections(config, SHARED | trained | sections_of(config))
        if trained:
            settings = build(TrainSettings, config.train, "config.train")
            build_optimizer(build(OptimizerSettings, config.optimizer, "config.optimizer"), settings.steps)
            split_evaluation(config.evaluation)
        assert config.name == module.__name__.removeprefix("configs.").replace(".", "/")
        assert axes.items() <= config.axes.to_dict().items()


@pytest.mark.parametrize("module, preset", CELLS, ids=lambda x: getattr(x, "__name__", x))
def test_the_axes_of_a_config_make_it_again(module, preset):
    """A report tells the command of every cell, which is made of the axes that its config has."""
    for _, config in cells_of(module, preset):
        told = ",".join(f"{axis}={value}" for axis, value in config.axes.items())
        assert module.get_config(told).to_dict() == config.to_dict()


def class_of(config) -> type:
    """The class that config.model describes."""
    if config.experiment == "intention.anomaly":
        return SetAnomalyDetector
    table = TARGET_REGRESSORS if "form" in config.model else TABLES.get(config.experiment, MODELS)
    return table[config.model.name].cls


@pytest.mark.parametrize("module, preset", CELLS, ids=lambda x: getattr(x, "__name__", x))
def test_what_is_stored_is_complete(module, preset):
    """Every field of every class that a config describes is a key, and so a flag."""
    for _, config in cells_of(module, preset):
        if "model" in config:
            fields = knobs_of(class_of(config)).keys()
            fields -= {"encoder", "layer", *OF_DATA}.difference(config.model)  # set by some experiments
            assert set(config.model) - {"form"} == {"name", *fields}
        for name, section in config.get("models", {}).items():
            row = (MODELS | EVENT_MODELS)[name]
            assert set(section) == {"name", *knobs_of(row.cls)} - set(OF_DATA)
        if "encoder" in config:
            assert set(config.encoder) == {"name", *knobs_of(ENCODERS[config.encoder.name])}


def compared_strings(module) -> set:
    compares = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Compare)]
    return {leaf.value for node in compares for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_value_depends_on_a_condition_on_the_preset(module):
    assert not compared_strings(module) & set(common.PRESETS)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_rows_of_edits_name_axes_and_values_that_exist(module):
    tables = [getattr(module, name, {}) for name in ("AXES", "EDITS")]
    rows = {part for table in tables for row in table for part in filter(None, row.split(","))}
    for axis, _, values in (row.partition("=") for row in rows):
        for value in values.split("|"):
            try:
                module.get_config(f"{axis}={value}")
            except ValueError as error:
                assert "unknown" not in str(error)  # it may need another model


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_index_lists_every_config_and_its_command(module):
    index = (ROOT / "configs" / "README.md").read_text()
    file = module.__name__.replace(".", "/") + ".py"
    assert f"--config {file}" in index and f"--config {file}" in inspect.getdoc(module)


# Configs whose models make no two steps here -> what says so much of them.
NOT_STEPPED = dict.fromkeys(
    [f"configs.set_transformer.{name}" for name in ("anomaly", "clouds", "counting", "encoder", "features")],
    "their data must be there",
) | {
    "configs.intention.few_shot_classification": "they are too slow, a test of shapes takes their place",
    "configs.point_processes.serving": "nothing is trained",
    "configs.set_transformer.clusters": "those of clustering.py make them, without masked seeds",
}
PAPER = [
    (module, model)
    for module in MODULES
    if module.__name__ not in NOT_STEPPED
    for model in getattr(module, "MODELS", ())
]
# The axes of data that need no download, where `paper` has others.
WITHOUT_DATA = {"configs.intention.anomaly": ",source=digits,features=raw_pixels_pca"}
# The networks of these are those of gp, whose two steps are made; here only the first model makes them.
SAME_NETWORKS = {f"configs.neural_processes.{name}" for name in ("analyses", "images", "wheel")}
# Of these, parts are tested by themselves.
SAME_NETWORKS |= {"configs.set_transformer.max", "configs.set_transformer.clustering"}


def test_what_makes_no_steps_is_a_config_with_models():
    assert NOT_STEPPED.keys() <= {module.__name__ for module in MODULES if hasattr(module, "MODELS")}


@pytest.mark.parametrize("module, model", PAPER, ids=lambda x: getattr(x, "__name__", x))
def test_two_steps_of_the_paper_preset_at_full_width(module, model, monkeypatch):
    """The published widths and numbers of points, two tasks in a batch; images are of noise, 28x28.

    Of equal layers two are enough: the whole depth is in the tests of published parameter counts and golden numbers.
    Where the same networks make their steps in another config, the step is traced, which checks shapes and settings.
    """
    if model == module.MODELS[0]:  # programs of full width take gigabytes; other configs share next to none
        jax.clear_caches()
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
    noise = dict.fromkeys(("train", "validation", "test"), images)
    load = regression._load
    monkeypatch.setattr(
        regression, "_load", lambda task, section, folder: (noise, {}) if section else load(task, section, folder)
    )
    config = module.get_config(f"model={model},preset=paper{WITHOUT_DATA.get(module.__name__, '')}")
    if "num_layers" in config.get("model", {}):
        config.model.num_layers = 2
    code = importlib.import_module(f"experiments.{config.experiment}.experiment")
    experiment = code.build(config, split_evaluation(config.evaluation)[1], None)
    if experiment.sizes:  # the slots of all sizes: the other classes are the same program, narrower
        widest = choose_classes(experiment.sizes.classes.law, 1)
        experiment = dataclasses.replace(experiment, sizes=experiment.sizes._replace(classes=widest))
    optimizer = build_optimizer(OptimizerSettings(**config.optimizer), config.train.steps)
    init = make_init(experiment, optimizer)
    step = make_step(experiment, optimizer, min(2, config.train.batch_size))
    if module.__name__ in SAME_NETWORKS and model != module.MODELS[0]:
        _, metrics = jax.eval_shape(step, jax.eval_shape(init, jnp.uint32(0)), experiment.data["train"])
        assert metrics["loss"].shape == ()
        return
    state = drawn(init, jnp.uint32(0))
    step = jax.jit(step, donate_argnums=0)
    for _ in range(2):
        state, metrics = step(state, experiment.data["train"])
        assert np.isfinite(metrics["loss"])


@pytest.mark.parametrize(
    "arg, message",
    [("model", "unknown model ''"), ("modle=a", "did you mean 'model'"), ("model=b ,preset=x", "unknown model 'b '")]
    + [("model=a,preset=x,model=b", "axis 'model' is given twice")],
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


def test_a_learnt_alpha_starts_where_the_operator_is_defined():
    positive = dict(name="intention", alpha=0.1, alpha_kind="softplus")
    assert common.op("intention") == positive
    assert common.op("intention", alpha=1.0) == positive | dict(alpha=1.0)
    assert common.op("sigma_informer", alpha=1.0) == dict(name="sigma_informer", alpha=0.5, alpha_kind="sigmoid")
    assert common.op("softmax") == "softmax"
    with pytest.raises(ValueError, match="did you mean 'intention'"):
        common.op("intension")


def test_operators_are_those_that_take_any_values_and_those_added_later(monkeypatch):
    assert set(common.operators()) >= {"softmax", "ls_svm", "informer", "sigma_informer"}
    assert not set(common.operators()) & {"lda", "within_class", "qda"}
    monkeypatch.setitem(OPERATORS, "another", OPERATORS["softmax"])
    assert "another" in common.operators()


class Sized(nn.Module):
    width: int
    depth: int = 2
    inner: nn.Module | None = None


@flax.struct.dataclass
class Listed:
    options: dict = flax.struct.field(default_factory=lambda: {"a": 1})


def test_a_section_has_all_fields():
    assert common.section(Sized, "inner", width=3) == dict(width=3, depth=2)
    assert common.section(Listed) == dict(options={"a": 1})
    with pytest.raises(ValueError, match="unknown field of Sized 'dept': did you mean 'depth'"):
        common.section(Sized, "inner", width=3, dept=1)
    with pytest.raises(ValueError, match="Sized.width has no default"):
        common.section(Sized)
    assert common.model("maml", inner_rate=0.01)["inner_rate"] == 0.01
    with pytest.raises(ValueError, match="unknown model 'mamml': did you mean 'maml'"):
        common.model("mamml")


def test_fields_of_several_types_are_those_of_the_models():
    """A flag has the type of its default, but theirs. Of initialisers it gives the name."""
    found, of_flags = set(), {int, float, bool, str, type(None), Mapping[str, Any]}
    for row in itertools.chain.from_iterable(table.values() for table in (MODELS, *TABLES.values())):
        hints = typing.get_type_hints(row.cls)
        found |= {name for name in knobs_of(row.cls) if len(of_flags.intersection(typing.get_args(hints[name]))) > 1}
    assert found == common.OF_SEVERAL_TYPES


def test_edits_hold_by_axes_in_their_order():
    config = dict(axes=dict(model="b", preset="tiny"), model=dict(op=dict(name="x", alpha=1.0), width=1))
    edited = common.edited(
        config,
        {"preset=tiny,model=a|b": {"model": dict(width=2)}, "model=a": {"model": dict(width=3)}},
        {"": {"model": dict(op=dict(alpha=2.0)), "model?": dict(width=4, depth=5)}},
    )
    assert edited.to_dict() == config | dict(model=dict(op=dict(name="x", alpha=2.0), width=4))
    assert config["model"]["width"] == 1
    assert common.edited(config, {"": {"model": dict(op="y")}}).model.op == "y"
    with pytest.raises(ValueError, match="unknown key of config.model 'widht': did you mean 'width'"):
        common.edited(config, {"": {"model": dict(widht=2)}})


def test_base_is_what_the_first_row_that_holds_says():
    table = {"preset=paper": dict(size="84"), "": dict(size="28", source="digits")}
    assert common.resolved(dict(preset="paper", size="base", source="base"), table) == dict(
        preset="paper", size="84", source="digits"
    )
    assert common.resolved(dict(preset="tiny", size="16", source="base"), table)["size"] == "16"


def test_operators_take_further_axes_of_the_experiment():
    arg = "experiment=few_shot_classification,op=erf,data=real,preset=quick"
    plain, wider = operators.get_config(arg), operators.get_config(f"{arg},encoder=resnet12")
    assert (plain.axes.encoder, wider.axes.encoder) == ("conv4", "resnet12") and wider.encoder.name == "resnet12"
    assert wider.model == plain.model
    for further, message in {
        "modl=attention": "unknown axis 'modl': did you mean 'model'",
        "model=maml": "model=maml is not that of few_shot_classification here, attention",
        "source=digits": "source=digits is not that of",
        "size=28,size=28": "axis 'size' is given twice",
        "encoder=resnet": "unknown encoder 'resnet'",
    }.items():
        with pytest.raises(ValueError, match=message):
            operators.get_config(f"{arg},{further}")
