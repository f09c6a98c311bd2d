"""The kinds of attention: what they change in the configs that they are made of, and that they fit."""

import jax
import pytest

from configs.neural_processes import attention, gp, images
from experiments.harness.launch import split_evaluation
from experiments.neural_processes.gp.experiment import build


def model_of(axes):
    return attention.get_config(axes).model.to_dict()


def test_without_an_axis_it_is_the_config_it_is_made_of():
    for data, file, axes in (("gp", gp, ""), ("emnist", images, ",data=emnist")):
        ours = attention.get_config(f"data={data}").to_dict()
        if data == "emnist":
            assert ours["evaluation"].pop("example_shown") == ("attention",)
        theirs = file.get_config(f"model=anp{axes}").to_dict()
        theirs["evaluation"].pop("example_shown", None)
        assert ours.pop("axes").items() >= theirs.pop("axes").items()
        assert ours == theirs | {"name": "neural_processes/attention"}


def test_an_operator_takes_the_place_of_one_attention():
    informer = dict(name="informer", alpha=0.5, alpha_kind="sigmoid")
    anp, cmanp = (model_of(f"model={model},op=informer") for model in ("anp", "cmanp"))
    assert anp == model_of("model=anp") | {"op": informer}
    assert cmanp == model_of("model=cmanp") | {"cross_op": informer}


@pytest.mark.parametrize(
    "axes, shown",
    [
        ("attention=uniform", ("half", "resolution", "attention")),
        ("op=linear", ("attention",)),
        ("op=constrained_intention", ()),
        ("model=cmanp,op=linear", ()),
    ],
)
def test_what_is_shown_of_images(axes, shown):
    assert attention.get_config(f"data=digits,{axes}").evaluation.example_shown == shown


@pytest.mark.parametrize("kind", attention.KINDS)
def test_every_kind_fits(kind):
    """Traced, not computed."""
    config = attention.get_config(f"data=gp,attention={kind},preset=tiny")
    made = build(config, split_evaluation(config.evaluation)[1], None)
    params = jax.eval_shape(made.init, jax.random.key(0))["params"]
    assert ("attention" in params["encoder"]) == (kind in ("own", "stacked_multihead"))
    assert ("further_0" in params["pooling"]) == (kind == "stacked_multihead")
    assert ("cross_attention" in params["encoder"]) == (kind in ("own", "multihead", "stacked_multihead"))


def test_kinds_are_those_of_anp():
    with pytest.raises(ValueError, match="attention=laplace is for model=anp"):
        attention.get_config("model=cmanp,attention=laplace")
