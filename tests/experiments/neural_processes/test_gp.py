"""Meta-regression: its evaluation by hand, a whole run with a model of one number, and its config."""

import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import linen as nn
from ml_collections import ConfigDict
from rich.console import Console

from configs.neural_processes import gp as config_file
from experiments import catalogue
from experiments.harness.errors import ConfigError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.size_classes import choose_classes
from experiments.neural_processes import predicting
from experiments.neural_processes.gp import experiment as meta_regression
from experiments.neural_processes.gp import tables
from experiments.tasks.gaussian_process import GaussianProcess
from kvq_jax.models import MODELS, Model, NeuralProcess, family
from kvq_jax.models.neural_processes.predictive import factorised, mixture
from tests.kvq_jax.nn.drawing import drawn
from tests.processes import ROOT


class Constant(NeuralProcess):
    """N(level, std^2) at every point, whatever the context."""

    std: float = 0.5

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        level = self.param("level", nn.initializers.constant(0.1), ())
        return factorised(jnp.broadcast_to(level, target_x.shape), jnp.full(target_x.shape, self.std))


@pytest.fixture
def constant_config(monkeypatch) -> ConfigDict:
    """The config of preset tiny with `Constant` as its model."""
    monkeypatch.setitem(MODELS, "constant", Model(Constant, "Constant", "neural_process"))
    config = config_file.get_config("preset=tiny")
    config.model = ConfigDict(dict(name="constant", dim_y=1, std=0.5))
    return config


def build(config, **evaluation):
    return meta_regression.build(config, split_evaluation(config.evaluation)[1] | evaluation, None)


def test_evaluation_by_hand(constant_config):
    """Log-likelihoods of N(0.1, 0.25) on each task's own targets, and the gap to both oracles."""
    constant_config.train.size_classes = 0
    made, key = build(constant_config, tasks=3, batch_size=2), jax.random.key(5)
    variables = made.init(jax.random.key(0))
    values = jax.jit(functools.partial(made.evaluate, key=key))(variables, None)
    for kernel in ("rbf", "matern", "periodic"):
        task = GaussianProcess(**constant_config.task.to_dict() | {"kernel": kernel})

        def sample(key, task=task):
            size = task.law.size(task.law.draw(jax.random.fold_in(key, 0)))
            return task.fill(task.draw(jax.random.fold_in(key, 1), None), task.law.slots, size)

        compiled = jax.jit(sample)
        for index, task_key in enumerate(jax.random.split(key, 3)):
            sampled = compiled(task_key)
            y = np.asarray(sampled.target.y)[np.asarray(sampled.target.mask), 0]
            expected = -0.5 * np.mean(np.log(2 * np.pi * 0.25) + (y - 0.1) ** 2 / 0.25)
            np.testing.assert_allclose(values[f"{kernel}/target"][index], expected, rtol=1e-4)
        for kind in ("marginal", "joint"):
            gap = values[f"{kernel}/oracle_{kind}"] - values[f"{kernel}/target"]
            np.testing.assert_allclose(values[f"{kernel}/gap_{kind}"], gap, atol=1e-6)
    assert made.sizes is None
    batch = jax.jit(jax.vmap(lambda key: made.sample(key, None)))(jax.random.split(key, 4))
    loss, _ = made.loss(variables, batch, key)
    keep = np.asarray(batch.target.mask)
    each = np.log(2 * np.pi * 0.25) + (np.asarray(batch.target.y)[..., 0] - 0.1) ** 2 / 0.25
    np.testing.assert_allclose(loss, np.mean([0.5 * e[k].mean() for e, k in zip(each, keep)]), rtol=1e-5)


def test_size_classes_change_no_number():
    """One class or three: every evaluation task and the loss of a batch are the same, to rounding."""
    config = config_file.get_config("model=cnp,preset=tiny")

    def numbers(count):
        config.train.size_classes = count
        made = build(config, tasks=12, batch_size=2, kernels=("matern",))
        variables = drawn(made.init, jax.random.key(0))

        def loss(slots, size):
            keys = jax.random.split(jax.random.key(2), 3)
            batch = jax.vmap(lambda key: made.sizes.fill(made.sample(key, None), slots, size))(keys)
            return made.loss(variables, batch, jax.random.key(3))[0]

        losses = jax.jit(lambda: [made.sizes.classes.switch(jax.random.key(index), loss) for index in range(3)])()
        return losses, jax.jit(functools.partial(made.evaluate, key=jax.random.key(5)))(variables, None)

    found = numbers(1), numbers(3)
    jax.tree.map(lambda one, three: np.testing.assert_allclose(one, three, rtol=2e-4, atol=2e-4), *found)
    assert np.isfinite(jax.tree.leaves(found[0])[0]).all()


def test_students_noise_has_no_oracle(constant_config):
    constant_config.task.t_scale = (0.0, 0.15)
    made = build(constant_config, kernels=("rbf",))
    evaluate = functools.partial(made.evaluate, key=jax.random.key(1))
    values = jax.eval_shape(evaluate, made.init(jax.random.key(0)), None)
    assert set(values) == {"rbf/target"}


def test_examples_are_one_function_seen_through_more_points(constant_config):
    made = build(constant_config, example_counts=(1, 5), example_points=9)
    arrays = jax.jit(made.examples)(made.init(jax.random.key(0)), None, jax.random.key(1))
    assert arrays["context_x"].shape == arrays["context_y"].shape == (3, 5) and arrays["x"].shape == (9,)
    assert arrays["prediction"].shape == arrays["oracle"].shape == (3, 2, 2, 9)
    np.testing.assert_allclose(arrays["prediction"][:, :, 0], 0.1, rtol=1e-6)
    np.testing.assert_allclose(arrays["prediction"][:, :, 1], 0.5, rtol=1e-6)
    oracle_std = arrays["oracle"][:, :, 1]
    assert (oracle_std[:, 1] <= oracle_std[:, 0] * 1.001).all() and oracle_std.min() >= 0.0199, (
        "more points, less variance"
    )


@pytest.mark.parametrize("most", [3, 4, 12])
def test_a_curve_is_predicted_in_parts_of_what_training_has(most):
    x, sizes = jnp.arange(24.0).reshape(2, 12, 1), []

    def predict(x):
        sizes.append(x.shape[-2])
        return dist.Normal(x[..., 0], 1 + x[..., 0])

    found = predicting.curve(predict, x, most)
    np.testing.assert_allclose(found, jnp.stack([x[..., 0], 1 + x[..., 0]], -2), rtol=1e-6)
    assert set(sizes) == {most}


def test_moments_of_all_kinds_of_distributions():
    mean, std = jnp.arange(6.0).reshape(2, 3), jnp.linspace(0.5, 1.0, 6).reshape(2, 3)
    expected = np.stack([mean, std], 1)
    one = factorised(mean[..., None], std[..., None])
    joint = dist.MultivariateNormal(mean, scale_tril=std[..., None] * jnp.eye(3))
    mixed = mixture(jnp.stack([mean - 1, mean + 1])[..., None], jnp.stack([std, std])[..., None])
    for predictive in (one, joint):
        np.testing.assert_allclose(predicting.moments(predictive, (2, 3)), expected, rtol=1e-6)
    np.testing.assert_allclose(predicting.moments(mixed, (2, 3)), np.stack([mean, np.sqrt(std**2 + 1)], 1), rtol=1e-5)


def test_a_whole_run(constant_config, tmp_path):
    """Trains, evaluates, shows its table and its figure; the level it learns is the mean of the functions, 0."""
    constant_config.train.update(steps=200, log_every=100, validate_every=200, checkpoint_every=200)
    constant_config.optimizer.learning_rate = 0.01
    output = io.StringIO()
    console = Console(file=output, width=120)
    result = launch(constant_config, tmp_path / "run", Options(), console, catalogue.show)
    shown = output.getvalue()
    assert "CNP, protocol code, std published" in shown and "± 0.02" in shown, "the paper's number"
    assert "missing" not in shown, "a number of the table that evaluation does not give"
    assert (tmp_path / "run" / "figure.png").read_bytes()[1:4] == b"PNG"
    assert result.content["parameter_count"] == 1 and result.metrics["trained/rbf/target"]["n"] == 8
    assert np.abs(result.examples["trained/prediction"][0, 0, 0]).max() < 0.08


@pytest.mark.parametrize(
    "change, message",
    [
        ({"kernels": ("rbf", "cosine")}, "unknown kernel 'cosine'"),
        ({"kernels": ()}, "kernels must be some of"),
        ({"example_counts": (5, 1)}, "increasing"),
    ],
)
def test_impossible_evaluations_are_refused(constant_config, change, message):
    with pytest.raises(ConfigError, match=message):
        build(constant_config, **change)


@pytest.mark.parametrize("model", family("neural_process"))
def test_the_same_std_differs_where_the_published_one_has_a_floor(model):
    published, same = (config_file.get_config(f"model={model},std={std}") for std in ("published", "same"))
    assert (same.model != published.model) == tables.has_floor(model)


@pytest.mark.parametrize("model", ["np", "tnp_a", "cmanp_and"])
def test_models_of_every_kind_fit_the_experiment(model):
    """Traced, not computed: a mixture, an autoregressive and a joint model at preset tiny."""
    made = build(config_file.get_config(f"model={model},preset=tiny,std=same"))
    variables = jax.eval_shape(made.init, jax.random.key(0))
    values = jax.eval_shape(functools.partial(made.evaluate, key=jax.random.key(0)), variables, None)
    assert len(values) == 15 and {value.shape for value in values.values()} == {(8,)}
    arrays = jax.eval_shape(made.examples, variables, None, jax.random.key(0))
    assert arrays["prediction"].shape == (3, 3, 2, 200)


def test_protocols_differ_where_the_sources_do():
    code, text, slides = (
        config_file.get_config(f"protocol={name},preset=paper") for name in ("code", "text", "slides")
    )
    assert (tuple(code.task.length_scale), tuple(text.task.length_scale)) == ((0.1, 0.6), (0.6, 1.0))
    assert (slides.task.max_context, slides.task.max_points, slides.optimizer.learning_rate) == (49, 50, 1e-4)
    models = family("neural_process")
    assert len(config_file.sweep()) == len(models) + sum(map(tables.has_floor, models))
    assert {cell["model"] for cell in config_file.sweep()} == set(models)


def test_the_readme_has_the_wastes_of_size_classes():
    law = GaussianProcess(**config_file.TASK).law
    own = {count: f"{choose_classes(law, count).waste:.3g}" for count in (1, 4, 12, 24)}
    in_one = {
        (name, count): f"{choose_classes(law.of_points, count, MODELS[name].cls.slot_costs).waste:.3g}"
        for name in ("cnp", "tnp_d")
        for count in (4, 12)
    }
    text = " ".join((ROOT / "README.md").read_text().split())
    assert (
        f"12 classes compute {own[12]} slots for each point there is, 24 compute {own[24]}, 4 compute {own[4]}, "
        f"one {own[1]}."
    ) in text
    assert (
        f"12 classes then compute {in_one['cnp', 12]} (TNP-D {in_one['tnp_d', 12]}), 4 compute {in_one['cnp', 4]} "
        f"({in_one['tnp_d', 4]})."
    ) in text
