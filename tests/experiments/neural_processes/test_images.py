"""Image completion: its evaluation and references by hand, pictures, a whole run, its config, Table 3."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from flax import linen as nn
from ml_collections import ConfigDict
from rich.console import Console

from configs.neural_processes import complexity as complexity_config
from configs.neural_processes import images as config_file
from experiments import catalogue
from experiments.data import image_sets
from experiments.harness.errors import ConfigError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.neural_processes import likelihoods
from experiments.neural_processes.images import experiment as completion_experiment
from experiments.neural_processes.images import references, tables
from experiments.neural_processes.images.completion import completed
from experiments.neural_processes.images.montage import observed
from experiments.tasks import Task
from experiments.tasks.base import without_replacement
from experiments.tasks.image_completion import ImageCompletion
from kvq_jax.models import MODELS, Model, NeuralProcess, Points, family
from kvq_jax.models.neural_processes.predictive import factorised, mixture


class Constant(NeuralProcess):
    """N(level, std^2) for every channel of every pixel, whatever is observed."""

    std: float = 0.5

    @nn.compact
    def __call__(self, context, target_x, target_mask=None, *, key=None):
        level = self.param("level", nn.initializers.constant(0.1), ())
        shape = (*target_x.shape[:-1], self.dim_y)
        return factorised(jnp.broadcast_to(level, shape), jnp.full(shape, self.std))


@pytest.fixture
def constant_config(monkeypatch) -> ConfigDict:
    """The config of preset tiny with `Constant` as its model, on four images to test on."""
    monkeypatch.setitem(MODELS, "constant", Model(Constant, "Constant", "neural_process"))
    digits = image_sets.load("digits", "digits", None, size=8, crop=False, validation_images=100, seen=(0, 10))
    parts = {"seen": digits.test["test"][:4], "unseen": digits.test["test"][4:7]}
    monkeypatch.setattr(image_sets, "load", lambda *args, **options: digits._replace(test=parts))
    config = config_file.get_config("preset=tiny")
    config.model = ConfigDict(dict(name="constant", dim_y=1, std=0.5))
    return config


def build(config, **evaluation):
    return completion_experiment.build(config, split_evaluation(config.evaluation)[1] | evaluation, None)


def test_evaluation_by_hand(constant_config):
    """N(0.1, 0.25) at the targets of every image, all of them once, since there are not more."""
    task = ImageCompletion(**constant_config.task)
    constant_config.task.target_cap = 5  # of the training alone
    made, key = build(constant_config, tasks=100, batch_size=2, subset=2), jax.random.key(5)
    variables = made.init(jax.random.key(0))
    values = jax.jit(functools.partial(made.evaluate, key=key))(variables, made.data["test"])
    draw, size = jax.jit(task.draw), jax.jit(lambda key: task.law.size(task.law.draw(key)))

    def likelihood(y):
        return np.mean(scipy.stats.norm(0.1, 0.5).logpdf(np.asarray(y)))

    for part, images in made.data["test"].parts.items():
        for index, task_key in enumerate(jax.random.split(key, len(images))):
            draws = draw(jax.random.fold_in(task_key, 1), images, index)
            _, m = map(int, size(jax.random.fold_in(task_key, 0)))
            np.testing.assert_allclose(values[f"{part}/target"][index], likelihood(draws.y[::-1][:m]), rtol=1e-4)
        assert {of.shape[0] for name, of in values.items() if name.startswith(f"{part}/") and "@" not in name} == {
            len(images)
        }
        for count in (3, 8):  # the same targets, all behind the largest count, and a model that sees nothing
            assert values[f"{part}/target@{count}"].shape == values[f"{part}/squared_error@{count}"].shape == (2,)
        np.testing.assert_allclose(values[f"{part}/target@3"], values[f"{part}/target@8"], rtol=1e-5)
        chosen = without_replacement(jax.random.fold_in(key, 2), len(images), 2)
        for index, task_key in enumerate(jax.random.split(key, 2)):
            draws = draw(jax.random.fold_in(task_key, 1), images, chosen[index])
            np.testing.assert_allclose(values[f"{part}/target@8"][index], likelihood(draws.y[8:]), rtol=1e-4)
        mse = -2 * 0.25 * (values[f"{part}/target@3"] + np.log(0.5 * np.sqrt(2 * np.pi)))
        np.testing.assert_allclose(values[f"{part}/squared_error@3"], mse, rtol=1e-3)
        bits = (np.log(255) - values[f"{part}/target"]) / np.log(2)
        np.testing.assert_allclose(values[f"{part}/bits_per_dim"], bits, rtol=1e-5)
    joint = values["seen/reference_gp_joint"]
    assert np.isfinite(joint).all() and not np.allclose(joint, values["seen/reference_gp"])


def test_bits_of_a_uniform_density_are_eight():
    """The density 256 / 255 of y on 256 values of v, a unit apart: 8 bits; of colours, for each channel."""
    log_density = -math.log(256 / 255)
    np.testing.assert_allclose(completion_experiment.bits_per_dim(log_density, 1), 8, rtol=1e-6)
    np.testing.assert_allclose(completion_experiment.bits_per_dim(3 * log_density, 3), 8, rtol=1e-6)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Twelve smooth images in two colours, 5 x 6."""
    rows, columns = np.mgrid[:5, :6]
    phase = np.random.default_rng(0).uniform(0, 6, (12, 1, 1, 2))
    return np.rint(127 + 90 * np.sin(rows[..., None] / 2 + columns[..., None] / 3 + phase)).astype(np.uint8)


def test_the_pixelwise_reference_is_mean_and_deviation_of_each_pixel(images):
    images = np.concatenate([images, images[:1]])
    images[:, 0, 0] = 7  # never anything else
    found = references.pixelwise(images, 0.05)
    y = images / 255 - 0.5
    np.testing.assert_allclose(found.mean, y.mean(0), atol=1e-6)
    np.testing.assert_allclose(found.std, np.maximum(y.std(0), 0.05), rtol=1e-5)
    assert found.std[0, 0, 0] == np.float32(0.05)
    draws = ImageCompletion(3, 3, 20, 0, (0.0, 0.0), 2.1).draw(jax.random.key(0), jnp.asarray(images), 2)
    mask = np.arange(19) < 7
    ours = references.pixelwise_log_likelihood(jax.tree.map(jnp.asarray, found), Points(*draws[:2], jnp.asarray(mask)))
    row, column = np.rint((np.asarray(draws.x)[mask].T + 1) / 2 * [[4], [5]]).astype(int)
    of_pixel = scipy.stats.norm(found.mean[row, column], found.std[row, column]).logpdf(y[2, row, column])
    np.testing.assert_allclose(ours, of_pixel.sum() / 7, rtol=1e-4)


def test_the_gaussian_process_has_the_greatest_marginal_likelihood_and_its_exact_posterior(images):
    found = jax.device_get(jax.jit(lambda images: references.fit(images, jax.random.key(1), 30))(images))
    rows, columns = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 6), indexing="ij")
    x, y = np.stack([rows, columns], -1).reshape(-1, 2), images.reshape(12, 30, 2) / 255 - 0.5
    np.testing.assert_allclose(found.level, y.mean((0, 1)), atol=1e-6)

    def covariance(scale, length, noise):
        distance = np.linalg.norm(x[:, None] - x, axis=-1)
        return scale**2 * np.exp(-distance / length) + noise**2 * np.eye(30)

    def evidence(*parameters):
        law = scipy.stats.multivariate_normal(np.zeros(30), covariance(*parameters))
        return law.logpdf(np.moveaxis(y - found.level, 2, 1).reshape(-1, 30)).mean()

    best = evidence(*found[:3])
    grid = [found.length * 1.27**step for step in (-2, -1, 1, 2)]
    assert all(evidence(found.scale, length, found.noise) < best for length in grid)
    assert all(evidence(found.scale * factor, found.length, found.noise * factor) < best for factor in (0.9, 1.1))

    order, (n, m) = np.random.default_rng(1).permutation(30), (8, 5)
    seen, asked = order[:n], order[n : n + m]
    points = [Points(*(jnp.asarray(rows[which], jnp.float32) for rows in (x, y[3]))) for which in (seen, asked)]
    ours = jax.jit(references.smooth_log_likelihood)(found, Task(*points))
    k = covariance(*map(float, found[:3]))
    solved = np.linalg.solve(k[np.ix_(seen, seen)], k[np.ix_(seen, asked)])
    mean = found.level + solved.T @ (y[3][seen] - found.level)
    cov = k[np.ix_(asked, asked)] - k[np.ix_(asked, seen)] @ solved
    marginal = scipy.stats.norm(mean, np.sqrt(np.diag(cov))[:, None]).logpdf(y[3][asked]).sum() / m
    joint = sum(scipy.stats.multivariate_normal(mean[:, c], cov).logpdf(y[3][asked, c]) for c in range(2)) / m
    np.testing.assert_allclose([ours["marginal"], ours["joint"]], [marginal, joint], rtol=1e-3)
    wide = [points_with_slots(each, slots) for each, slots in zip(points, (11, 7))]
    padded = jax.jit(references.smooth_log_likelihood)(found, Task(*wide))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4), padded, ours)


def points_with_slots(points, slots):
    """Points with absent ones after them, whose numbers must not matter."""
    rows = [jnp.pad(array, [(0, slots - len(array)), (0, 0)], constant_values=0.3) for array in points[:2]]
    return Points(*rows, jnp.arange(slots) < len(points.x))


class Coordinates(NeuralProcess):
    """Predicts the coordinates of a pixel: factorised, as a mixture around them, or jointly."""

    dim_y: int = 2
    form: str = "factorised"

    @property
    def likelihood(self):
        return "joint" if self.form == "joint" else "marginal"

    def __call__(self, context, target_x, target_mask=None, *, key=None):
        mean, std = target_x / 2, jnp.full(target_x.shape, 1e-3)
        if self.form == "joint":
            flat = mean.reshape(*mean.shape[:-2], -1)
            return dist.MultivariateNormal(flat, scale_tril=1e-3 * jnp.eye(flat.shape[-1]))
        if self.form == "mixture":
            return mixture(jnp.stack([mean, mean / 2, mean / 4]), jnp.stack([std] * 3))
        return factorised(mean, std)


@pytest.mark.parametrize("form", ["factorised", "mixture", "joint"])
def test_predictions_are_put_where_their_pixels_are(form, images):
    """In blocks of at most seven pixels, six of each five."""
    image = jnp.asarray(images[0])
    arrays = jax.jit(lambda: completed(Coordinates(form=form), {}, image, jax.random.key(0), (3, 8), 2, 7))()
    rows, columns = np.meshgrid(np.linspace(0, 255, 5), np.linspace(0, 255, 6), indexing="ij")
    expected = np.stack([rows, columns], -1)
    assert sorted(arrays["pixels"]) == list(range(30)) and np.array_equal(arrays["truth"], image)
    assert {str(of.dtype) for name, of in arrays.items() if name != "pixels"} == {"uint8"}
    if form == "factorised":
        assert "prediction_samples" not in arrays
    if form != "mixture":
        assert np.abs(np.asarray(arrays["prediction_mean"], float) - expected).max() <= 1
        assert np.asarray(arrays["prediction_std"]).max() == 0  # a thousandth
    if form == "mixture":
        first, second = (127.5 + (expected - 127.5) / part for part in (1, 2))
        drawn = np.asarray(arrays["prediction_samples"], float)
        assert drawn.shape == (3, 2, 5, 6, 2)
        assert np.abs(drawn[:, 0] - first).max() <= 1 and np.abs(drawn[:, 1] - second).max() <= 1
    if form == "joint":
        drawn = np.asarray(arrays["prediction_samples"], float)
        assert drawn.shape == (3, 2, 5, 6, 2) and np.abs(drawn - expected).max() <= 3


def test_what_is_observed_in_a_picture(images):
    shown = observed(images[0], np.array([0, 7]))
    assert np.array_equal(shown[0, 0], images[0, 0, 0]) and np.array_equal(shown[1, 1], images[0, 1, 1])
    assert np.sum(np.any(shown != 128, -1)) <= 2


def test_a_whole_run(constant_config, tmp_path):
    """Trains, evaluates, shows its table and its figure; in micro-batches, the level is the mean of the images."""
    constant_config.train.update(steps=200, log_every=100, validate_every=200, checkpoint_every=200, micro_batches=2)
    constant_config.optimizer.learning_rate = 0.02
    with (tmp_path / "shown").open("w") as file:
        result = launch(constant_config, tmp_path / "run", Options(), Console(file=file, width=120), catalogue.show)
    shown = (tmp_path / "shown").read_text()
    assert "CNP on digits" in shown and "Gaussian process" in shown and "unseen" in shown
    assert "missing" not in shown, "a number of the table that evaluation does not give"
    assert (tmp_path / "run" / "figure.png").read_bytes()[1:4] == b"PNG"
    assert result.metrics["trained/seen/target"]["n"] == 4 and result.metrics["trained/unseen/target"]["n"] == 3
    level = np.asarray(result.examples["trained/prediction_mean"]).mean() / 255
    assert abs(level - 0.305) < 0.03
    assert all(array.dtype == np.uint8 for name, array in result.examples.items() if name not in ("counts", "pixels"))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(counts=(8, 3)), "counts: expected tuple, increasing"),
        (dict(counts=(3, 15)), "config.evaluation.counts: 15 observed pixels leave no target of 15"),
        (dict(example_counts=(64,)), "config.evaluation.example_counts: 64 observed pixels leave no target of 64"),
        (dict(tasks=0), "tasks: expected int, at least 1"),
    ],
)
def test_impossible_evaluations_are_refused(constant_config, change, message):
    with pytest.raises(ConfigError, match=message):
        build(constant_config, **change)


def test_tasks_and_models_that_do_not_fit_the_images_are_refused(constant_config):
    constant_config.task.max_points = 65
    with pytest.raises(ConfigError, match="config.task.max_points: 65, but the images have 64 pixels"):
        build(constant_config)
    constant_config.task.max_points, constant_config.model.dim_y = 16, 3
    with pytest.raises(ConfigError, match="config.model.dim_y: 3, but the images have 1 channel"):
        build(constant_config)


@pytest.mark.parametrize("model", ["np", "tnp_a", "cmanp_and"])
def test_models_of_every_kind_fit_the_experiment(model):
    """Traced, not computed: a mixture, an autoregressive and a joint model at preset tiny."""
    made = build(config_file.get_config(f"model={model},preset=tiny"))
    variables = jax.eval_shape(made.init, jax.random.key(0))
    test = made.data["test"]
    values = jax.eval_shape(functools.partial(made.evaluate, key=jax.random.key(0)), variables, test)
    assert len(values) == 9 and values["test/target"].shape == (8,) and values["test/target@3"].shape == (4,)
    arrays = jax.eval_shape(made.examples, variables, test, jax.random.key(0))
    assert arrays["prediction_mean"].shape == (1, 2, 3, 8, 8, 1)
    assert arrays["prediction_samples"].shape == (1, 2, 3, 2, 8, 8, 1)


@pytest.mark.parametrize("model", family("neural_process"))
@pytest.mark.parametrize("alike", [("emnist", "mnist", "digits"), ("celeba32", "celeba64", "celeba128")])
def test_images_of_one_kind_have_the_same_model(model, alike):
    first, *others = (config_file.get_config(f"model={model},data={data},preset=paper").model for data in alike)
    assert all(other == first for other in others)


def test_bounded_deviations_are_those_of_grey_images():
    for model in family("neural_process"):
        grey, faces = (config_file.get_config(f"model={model},data={data}").model for data in ("emnist", "celeba32"))
        if likelihoods.kind(model) == "joint" and model != "tnp_a":
            assert (grey.bound, faces.bound) == (True, False)
        elif model in config_file.MARGINAL.split("|"):
            assert (grey.std_map, grey.std_floor, faces.std_map, faces.std_floor) == ("softplus", 0.05, "exp", 0.0)
        else:
            assert grey.std_floor == faces.std_floor == 0.1
    autoregressive = config_file.get_config("model=tnp_a,data=emnist").model
    assert (autoregressive.teacher_noise, autoregressive.permute) == (0.05, False)


def test_protocols_differ_where_the_sources_do():
    get = lambda data, protocol: config_file.get_config(f"data={data},protocol={protocol},preset=paper")
    assert [get("emnist", protocol).data.size for protocol in ("code", "text")] == [28, 32]
    assert [get("celeba64", protocol).task.target_cap for protocol in ("code", "text")] == [400, 0]
    assert get("emnist", "code").task.target_cap == get("emnist", "text").task.target_cap == 0
    faces = [get(f"celeba{size}", "code") for size in (32, 64, 128)]
    assert [config.task.max_points for config in faces] == [200, 800, 1600]
    assert [config.train.batch_size for config in faces] == [100, 50, 25]
    assert [config.train.steps for config in faces] == [200 * epoch for epoch in (1827, 3653, 7306)]
    assert get("emnist", "code").train.steps == 200 * 240


def content(model, data="emnist", preset="quick", protocol="code", value=1.0):
    """A result.json as a run would write it, with likelihoods of our choice."""
    config = config_file.get_config(f"model={model},data={data},preset={preset},protocol={protocol}")

    def number(mean):
        return {"mean": mean, "sem": 0.01, "median": mean, "n": 500, "seeds": [mean]}

    metrics = {}
    for part, shift in {"seen": 0.0, "unseen": -0.2}.items() if data == "emnist" else [("test", 0.0)]:
        values = dict(target=value + shift, context=2, bits_per_dim=6, reference_pixelwise=0.1)
        values |= dict(reference_gp=0.25, reference_gp_joint=0.5)
        values |= {f"target@{count}": value + count / 100 for count in config.evaluation.counts}
        metrics |= {f"trained/{part}/{name}": number(mean) for name, mean in values.items()}
    as_dict = json.loads(config.to_json())
    told = {"data": {"emnist": "EMNIST (47 classes, re-split)"}.get(data, "CelebA (3,000-image subset)")}
    shared = {"steps": config.train.steps, "best_step": None, "seeds": [0], "parameter_count": 1, "config": as_dict}
    return {"name": config.name, "axes": as_dict["axes"], "metrics": metrics, "facts": told} | shared


def memory_content(model, data, size):
    """A result.json of complexity.py:what=images that has measured one model alone, in bytes."""
    config = complexity_config.get_config("what=images,preset=paper")
    as_dict = json.loads(config.to_json())
    points = config.series[data].sizes[0]
    metrics = {f"{data}/{model}@{points}": {"mean": size, "sem": 0.0, "median": size, "n": 1, "seeds": [size]}}
    facts = {"absent": []}
    return {"name": config.name, "axes": as_dict["axes"], "metrics": metrics, "facts": facts, "config": as_dict}


def given(folder):
    contents = (
        content("tnp_d", value=1.2),
        content("cnp", value=0.6),
        content("cmanp", value=1.204),
        content("cnp", "celeba32", value=2.0),
        content("tnp_nd", value=1.3),
        memory_content("anp", "celeba64", 60 * 2**30),
        content("lbanp", preset="tiny"),
        content("lbanp", protocol="text"),
    )
    return [Result(folder / str(index), made) for index, made in enumerate(contents)]


def test_table3_shows_the_paper_the_references_and_what_is_missing(tmp_path):
    table = tables.TABLES["cmanp/table3"](given(tmp_path))
    rows = {name: [cell if isinstance(cell, str) else cell.text() for cell in cells] for name, cells in table.rows}
    assert table.columns[:3] == ["model", "steps", "CelebA 32"] and len(table.columns) == 12
    seen = table.columns.index("EMNIST seen") - 1
    assert rows["TNP-D"][seen : seen + 4] == ["1.200 ± 0.010", "1.46 ± 0.01", "1.000 ± 0.010", "1.31 ± 0.00"]
    assert rows["CNP"][1:3] == ["2.000 ± 0.010", "2.15 ± 0.01"] and rows["TNP-D"][1] == "missing"
    assert rows["ANP"][3:5] == ["60 GiB", "-"], "what is known to need much says so; the paper has a dash"
    assert {name for name, cells in table.rows if not isinstance(cells[seen], str) and cells[seen].best} == {
        "TNP-D",
        "CMANP",
        "TNP-ND",
    }
    assert rows["LBANP"][seen] == "missing", "neither another preset nor another protocol"
    assert rows["Gaussian of each pixel"][seen] == "0.100 ± 0.010" and rows["Gaussian process"][seen] == "0.250 ± 0.010"
    assert rows["Gaussian process, joint"][seen] == "0.500 ± 0.010"
    for text in ("Preset quick", "EMNIST (47 classes, re-split) (emnist)", "CelebA (3,000-image subset)", "500 images"):
        assert text in table.caption
    assert tables.TABLES["cmanp/table3"]([]) is None and table.csv().startswith("model,") and table.latex("tab:table3")
    digits = Result(tmp_path / "digits", content("cnp") | {"axes": content("cnp")["axes"] | {"data": "digits"}})
    assert tables.TABLES["cmanp/table3"]([digits]) is None


def test_the_table_of_a_run(tmp_path):
    rows = dict(tables.run_table(given(tmp_path)[0]).rows)
    assert [cell.text() for cell in rows["the paper"]] == ["1.46 ± 0.01", "1.31 ± 0.00"]
    assert rows["targets, 30 observed"][0].text() == "1.500 ± 0.010"
    joint = dict(tables.run_table(given(tmp_path)[4]).rows)
    assert joint["Gaussian process"][0].text() == "0.500 ± 0.010", "a joint model beside a joint reference"


def test_the_catalogue_has_it():
    assert catalogue.find("tables", "cmanp/table3") is tables.TABLES["cmanp/table3"]
