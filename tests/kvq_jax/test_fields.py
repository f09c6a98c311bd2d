"""help() of a model explains every field, its own and those of its bases."""

import inspect
import pydoc

import pytest

from kvq_jax import models
from kvq_jax.fields import explanations, fields_of, knobs_of
from kvq_jax.nn import Block

CLASSES = {
    row.cls
    for table in ("MODELS", "CLASSIFIERS", "WEIGHT_REGRESSORS", "TARGET_REGRESSORS", "SET_NETWORKS", "EVENT_MODELS")
    for row in getattr(models, table).values()
} | {models.SetAnomalyDetector}


@pytest.mark.parametrize("cls", sorted(CLASSES, key=lambda cls: cls.__name__), ids=lambda cls: cls.__name__)
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
