"""The kinds of attention: what they change in the configs that they are made of, and that they fit."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from configs.neural_processes import attention, gp, images
from experiments.harness.launch import split_evaluation
from experiments.neural_processes.gp.experiment import build
from kvq_jax.models import ANP, Points


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


@pytest.mark.parametrize("kind", attention.KINDS[1:])
def test_the_slides_train_their_anp_by_their_notebook(kind):
    """The bound, rate, sizes and functions of the notebook; all else is that of the kind under another protocol."""
    ours, other = (
        attention.get_config(f"data=gp,preset=paper,attention={kind}{axis}") for axis in (",protocol=slides", "")
    )
    model, optimizer, task = ours.model, ours.optimizer, ours.task
    assert (model.objective, model.train_samples) == ("elbo", 1)
    assert model.self_attention == (2 if kind == "stacked_multihead" else False)
    assert (model.hidden, model.latent, model.value_depth, model.pre_depth, model.decoder_depth) == (128, 128, 4, 4, 3)
    assert (model.std_map, model.std_floor, model.latent_floor) == ("softplus", 0.1, 0.1)
    assert (optimizer.name, optimizer.learning_rate, optimizer.schedule) == ("adam", 1e-4, "constant")
    assert (ours.train.steps, ours.train.batch_size) == (100_000, 16)
    assert (task.kernel, task.length_scale, task.scale) == ("rbf", (0.1, 0.6), (0.1, 1.0))
    assert (task.noise, task.position, task.min_context, task.max_context) == (0.02, (-2.0, 2.0), 3, 49)
    changed = {"objective": "importance", "train_samples": 4}
    assert other.model.to_dict() == model.to_dict() | changed


def test_quick_slides_make_up_for_their_lower_rate():
    slides, code = (attention.get_config(f"data=gp,protocol={protocol}") for protocol in ("slides", "code"))
    assert slides.train.steps / code.train.steps == 5
    assert slides.optimizer.learning_rate * 5 == pytest.approx(code.optimizer.learning_rate)


def test_the_slides_loss_is_the_bound_of_the_notebook():
    """-(log p(y | z) - KL) over the number of all points, at one z of the posterior, by hand."""
    config = attention.get_config("data=gp,protocol=slides,attention=dot_product,preset=tiny")
    made = build(config, split_evaluation(config.evaluation)[1], None)
    variables, key = made.init(jax.random.key(0)), jax.random.key(1)
    model = ANP(**{name: value for name, value in config.model.items() if name != "name"})
    x, y = (jax.random.normal(key, (5, 1)) for key in jax.random.split(key))
    context, points = Points(x[:3], y[:3]), Points(x, y)

    def parts(model):
        representation, summary = model.encode(context, x)
        prior, posterior = (model.z_given(of) for of in (summary, model.pooling(x, y)))
        z = posterior.base_dist.loc + posterior.base_dist.scale * jax.random.normal(key, (1, model.latent))[0]
        mean, std = model.decode((representation, z[None]), x)
        return dist.Normal(mean, std).log_prob(y).sum(), dist.kl_divergence(posterior, prior)

    fit, divergence = model.apply(variables, method=parts)
    loss = model.apply(variables, context, points, key=key, method="loss_of_points")
    assert divergence > 0
    np.testing.assert_allclose(loss, -(fit - divergence) / 5, rtol=1e-5)


def test_what_functions_alone_have_is_refused_for_images():
    for axes in ("protocol=slides", "std=same"):
        with pytest.raises(ValueError, match=f"{axes} is for data=gp"):
            attention.get_config(f"data=digits,{axes}")
    assert attention.get_config("data=emnist,protocol=text").data.size == 32
    assert attention.get_config("data=gp,std=same").model.std_floor == 0


def test_the_command_of_a_result_makes_its_config():
    for axes in ("data=gp,protocol=slides,attention=laplace", "data=emnist,op=linear"):
        config = attention.get_config(axes)
        told = ",".join(f"{axis}={value}" for axis, value in config.axes.items())
        assert attention.get_config(told).to_dict() == config.to_dict()


def test_kinds_are_those_of_anp():
    with pytest.raises(ValueError, match="attention=laplace is for model=anp"):
        attention.get_config("model=cmanp,attention=laplace")
