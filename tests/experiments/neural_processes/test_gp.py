"""Meta-regression: its evaluation by hand, a whole run with a model of one number, its config, tables and figures."""

import csv
import functools
import io
import json

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
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.harness.size_classes import choose_classes
from experiments.neural_processes import attention_results, likelihoods, predicting
from experiments.neural_processes.gp import experiment as meta_regression
from experiments.neural_processes.gp import tables
from experiments.neural_processes.gp.figures import FIGURES
from experiments.neural_processes.gp.findings import FINDINGS
from experiments.neural_processes.paper_numbers import TABLE4, TABLE7
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
    [({"kernels": ("rbf", "cosine")}, "kernels must be some of"), ({"example_counts": (5, 1)}, "increasing")],
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


def content(model, std="published", preset="quick", protocol="code", rbf=1.0):
    """A result.json as a run would write it, with likelihoods of our choice."""
    config = config_file.get_config(f"model={model},std={std},preset={preset},protocol={protocol}")

    def number(mean):
        return {"mean": mean, "sem": 0.01, "median": mean, "n": 100, "seeds": [mean]}

    metrics = {}
    for kernel, shift in (("rbf", 0), ("matern", -0.4), ("periodic", -3)):
        values = dict(target=rbf + shift, context=2, oracle_marginal=1.5, oracle_joint=1.8)
        values |= {f"gap_{kind}": values[f"oracle_{kind}"] - values["target"] for kind in ("marginal", "joint")}
        metrics |= {f"trained/{kernel}/{name}": number(value) for name, value in values.items()}
    as_dict = json.loads(config.to_json())
    shared = {
        "steps": config.train.steps,
        "validation_losses": [],
        "best_step": None,
        "seeds": [0],
        "parameter_count": 1,
        "config": as_dict,
    }
    return {"name": config.name, "axes": as_dict["axes"], "metrics": metrics} | shared


EXAMPLES = {
    "counts": np.array([1, 3]),
    "x": np.linspace(-2, 2, 9),
    "context_x": np.zeros((3, 3)),
    "context_y": np.zeros((3, 3)),
    "oracle": np.ones((3, 2, 2, 9)),
    "trained/prediction": np.ones((3, 2, 2, 9)),
}


def results(folder, *contents):
    found = []
    for index, made in enumerate(contents):
        (folder / str(index)).mkdir(parents=True)
        np.savez(folder / str(index) / "examples.npz", **EXAMPLES)
        found.append(Result(folder / str(index), made))
    return found


def given(folder):
    return results(
        folder,
        content("tnp_d", rbf=1.2),
        content("cnp", rbf=0.3),
        content("cnp", std="same", rbf=1.207),
        content("tnp_nd", rbf=1.45),
        content("cmanp", preset="tiny"),
        content("lbanp", protocol="text"),
    )


def test_table4_shows_the_paper_the_oracle_and_what_is_missing(tmp_path):
    table = tables.TABLES["cmanp/table4"](given(tmp_path))
    rows = {name: [cell if isinstance(cell, str) else cell.text() for cell in cells] for name, cells in table.rows}
    best = {name for name, cells in table.rows if cells[1].best}
    assert list(rows)[:8] == ["CNP", "CANP", "NP", "ANP", "BNP", "BANP", "TNP-D", "EQTNP"]
    assert rows["TNP-D"][1:4] == ["1.200 ± 0.010", "1.39 ± 0.00", "0.300 ± 0.010"] and rows["TNP-D"][5] == "0.95 ± 0.01"
    assert rows["CNP, same std"][1:3] == ["1.207 ± 0.010", "-"]
    assert rows["TNP-ND"][3] == "0.350 ± 0.010" and rows["oracle, joint"][1] == "1.800 ± 0.010"
    assert rows["oracle, marginal"][1] == "1.500 ± 0.010"
    assert best == {"TNP-D", "CNP, same std", "TNP-ND"}
    assert set(rows["CMANP"]) == {"missing"} | {"1.24 ± 0.01", "0.80 ± 0.01"}, "another preset is not mixed in"
    assert "missing" in rows["LBANP"], "nor another protocol"
    assert "Preset quick" in table.caption and "over 100 functions" in table.caption and "U(0.1, 0.6)" in table.caption
    assert tables.TABLES["cmanp/table4"]([]) is None and table.csv().startswith("model,")


def test_figures_draw_what_is_there(tmp_path):
    found = given(tmp_path)
    for name, columns in (("gp_functions_rbf", 6), ("gp_functions_periodic", 6), ("gp_likelihoods", 9)):
        draw = FIGURES[f"cmanp/{name}"]
        assert draw(found, tmp_path / "figures").read_bytes()[1:4] == b"PNG"
        with (tmp_path / "figures" / f"{name}.csv").open() as file:
            rows = list(csv.reader(file))
        assert len(rows[0]) == columns and {"cnp", "tnp_d", "tnp_nd"} <= {cell for row in rows for cell in row}
        with pytest.raises(UserError, match="there are none"):
            draw([], tmp_path)


def test_functions_of_anp_with_each_attention(tmp_path):
    kinds = ("multihead", "laplace")
    axes = [content("anp")["axes"] | dict(data="gp", attention=kind, op="own") for kind in kinds]
    found = results(tmp_path, *(content("anp") | dict(name=attention_results.CONFIG, axes=of_kind) for of_kind in axes))
    draw = FIGURES["anp/functions_rbf"]
    path = draw(found, tmp_path / "figures")
    assert path.name == "functions_rbf.png" and path.read_bytes()[1:4] == b"PNG"
    with path.with_suffix(".csv").open() as file:
        drawn = [row["model"] for row in csv.DictReader(file)]
    assert drawn == ["laplace"] * 9 + ["multihead"] * 9, "in the order of the slides"
    assert [cells[-1] for _, cells in tables.run_table(found[:1]).rows] == ["-"] * 3, "the paper has another attention"
    with pytest.raises(UserError, match="anp/functions_rbf needs results of neural_processes/attention with data=gp"):
        draw(given(tmp_path / "other"), tmp_path)


def test_the_catalogue_has_them():
    assert catalogue.find("tables", "cmanp/table4") is tables.TABLES["cmanp/table4"]
    assert "cmanp/gp_functions_rbf" in catalogue.names("figures")


def test_rows_say_which_likelihood_judges_a_model_and_whether_its_std_has_a_floor():
    models = family("neural_process")
    assert [model for model in models if likelihoods.kind(model) == "joint"] == [
        "tnp_a",
        "tnp_nd",
        "lbanp_nd",
        "cmanp_and",
    ]
    floored = ["cnp", "canp", "np", "anp", "bnp", "banp", "intention_anp"]
    assert [model for model in models if tables.has_floor(model)] == floored


def test_printed_numbers_are_of_known_models():
    models = family("neural_process")
    assert set(TABLE4) <= set(models) and set(TABLE7) - {"uniform"} <= set(models)


def test_a_model_added_at_run_time_has_its_row_and_no_number_of_the_paper(constant_config, tmp_path):
    ours = content("tnp_d", rbf=0.5)
    ours["axes"] = ours["axes"] | {"model": "constant"}
    found = [*given(tmp_path), Result(tmp_path / "0", ours)]
    rows = dict(tables.TABLES["cmanp/table4"](found).rows)
    assert rows["Constant"][1].text() == "0.500 ± 0.010" and rows["Constant"][2] == rows["Constant"][5] == "-"
    assert [cells[-1] for _, cells in tables.run_table(found[-1:]).rows] == ["-", "-", "-"]
    assert FIGURES["cmanp/gp_likelihoods"](found, tmp_path).exists()
    del found[-1]
    assert dict(tables.TABLES["cmanp/table4"](found).rows)["Constant"][0] == "missing"


def test_published_runs_are_told_beside_the_paper_where_it_has_them(tmp_path):
    ours = [content("tnp_d", preset="paper", rbf=1.36), content("intention_anp", preset="paper", rbf=0.9)]
    runs, beside = FINDINGS["cmanp/table4_paper"](results(tmp_path, *ours))
    assert "Intention ANP, 1 seed, 0.900 ± 0.010 on RBF and 0.500 ± 0.010 on Matern 5/2" in runs.text
    assert "1.360 ± 0.010 on RBF (the paper 1.39)" in runs.text
    assert beside.text.startswith("2 of 2") and beside.text.endswith("-0.030 to +0.010.")


def test_what_the_floor_costs(tmp_path):
    ours = [content("tnp_d", preset="paper", rbf=1.2), content("cnp", preset="paper", rbf=0.2)]
    for said in FINDINGS["cmanp/table4_paper"](results(tmp_path / "published", *ours)):
        assert "floor" not in said.text
    both = results(tmp_path / "both", *ours, content("cnp", std="same", preset="paper", rbf=0.45))
    *_, said = FINDINGS["cmanp/table4_paper"](both)
    assert (
        "CNP 0.200 ± 0.010 with its floor of 0.1 and 0.450 ± 0.010 without, 25% of what it lacks to TNP-D" in said.text
    )


def test_a_run_with_one_thing_changed_has_a_row_of_its_own(tmp_path):
    few = content("lbanp", preset="paper", rbf=1.25) | {"overrides": {"model.num_latents": 8}}
    ours = results(tmp_path / "one", content("tnp_d", preset="paper", rbf=1.36), few)
    rows = dict(tables.TABLES["cmanp/table4"](ours).rows)
    assert rows["LBANP, 8 latents"][1].text() == "1.250 ± 0.010" and rows["LBANP, 8 latents"][2] == "-"
    assert rows["LBANP"][0] == "missing" and list(rows).index("LBANP, 8 latents") < list(rows).index("TNP-A")
    assert FIGURES["cmanp/gp_likelihoods"](ours, tmp_path).exists()
    *_, said = FINDINGS["cmanp/table4_paper"](ours)
    assert said.text.endswith("RBF: LBANP, 8 latents, 1.250 ± 0.010 (the paper 1.27).")
    both = [*ours, *results(tmp_path / "two", content("lbanp", preset="paper", rbf=0.9))]
    *_, said = FINDINGS["cmanp/table4_paper"](both)
    assert said.text.endswith(
        "LBANP, 8 latents, 1.250 ± 0.010 (as published, with 128 latents, 0.900 ± 0.010 and the paper 1.27)."
    )
    other = few | {"overrides": {"train.seed": 1, "optimizer.clip_norm": 10.0, "train.seeds": 1}}
    rows = dict(tables.TABLES["cmanp/table4"](results(tmp_path / "three", other)).rows)
    assert rows["LBANP, gradient clipped at 10, seed 1"][1].text() == "1.250 ± 0.010"
    both = content("cnp", std="same", preset="paper", rbf=0.45) | {"overrides": {"train.seed": 1}}
    rows = dict(tables.TABLES["cmanp/table4"](results(tmp_path / "four", both)).rows)
    assert rows["CNP, same std, seed 1"][1].text() == "0.450 ± 0.010" and rows["CNP, same std"][0] == "missing"


def test_a_run_far_from_the_paper_is_told_with_the_rise_of_its_loss(tmp_path):
    far = content("lbanp", preset="paper", rbf=0.9)
    falling = far | {"validation_losses": [[1, 0.5], [2, 0.1]]}
    *_, said = FINDINGS["cmanp/table4_paper"](results(tmp_path / "falling", falling))
    assert said.text == "Farther from the paper: LBANP, -0.370 on RBF and -0.350 on Matern 5/2."
    rising = far | {"validation_losses": [[1, 0.2], [2, -0.3], [3, 0.5], [4, 0.4], [5, -0.4]]}
    *_, said = FINDINGS["cmanp/table4_paper"](results(tmp_path / "rising", rising))
    assert said.text.endswith("; its validation loss went from -0.300 after 2 steps to 0.500 after 3.")
    near = results(tmp_path / "near", content("lbanp", preset="paper", rbf=1.25) | {"validation_losses": [[1, 1.0]]})
    assert not any("Farther" in said.text for said in FINDINGS["cmanp/table4_paper"](near))


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
