"""help() of a module explains every field, its own and those of its bases."""

import importlib
import inspect
import pkgutil
import pydoc

import pytest

import kvq_jax
from kvq_jax import models
from kvq_jax.fields import explanations, fields_of, knobs_of
from kvq_jax.nn import Block

MODULES = [importlib.import_module(found.name) for found in pkgutil.walk_packages(kvq_jax.__path__, "kvq_jax.")]
# All modules that the library defines.
CLASSES = [
    value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, type)
    and issubclass(value, Block)
    and value.__module__ == module.__name__
    and value is not Block
    and not name.startswith("_")
]


def test_the_classes_are_those_of_the_tables_and_more():
    tables = (models.MODELS, models.IMAGE_CLASSIFIERS, models.SET_NETWORKS, models.EVENT_MODELS)
    assert {row.cls for table in tables for row in table.values()} < set(CLASSES)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_is_explained(cls):
    told = explanations(cls)
    assert told.keys() == fields_of(cls).keys() and all(told.values()), [name for name in told if not told[name]]
    listed = inspect.getdoc(cls).partition("\nFields:\n\n")[2].splitlines()
    assert [line.split(" = ")[0].strip() for line in listed] == list(told)


def test_comments_behind_fields_are_read_where_they_stand():
    told = explanations(models.CMANPAND)
    assert told["num_latents"] == "L_I, the rows of a level" and told["dim_y"] == "number of outputs of a point"
    assert "num_latents = 128: L_I" in pydoc.render_doc(models.CMANPAND)
    assert told["hidden"] != explanations(models.CNP)["hidden"]  # one name, two meanings


def test_a_class_without_source_has_the_words_of_its_names():
    names = {"Block": Block, "__name__": "typed"}
    exec("class Typed(Block):\n    'One.'\n    num_heads: int = 3  # unseen\n    own: int = 1", names)
    said = inspect.getdoc(names["Typed"])
    assert said.startswith(
        "One.\n\nFields:\n\n    num_heads = 3: heads of attention\n    own = 1: \n    dtype = None: "
    )


def test_dtypes_are_set_from_python_only():
    for cls in CLASSES:
        assert set(fields_of(cls)) - set(knobs_of(cls)) == {"dtype", "param_dtype"}, cls
