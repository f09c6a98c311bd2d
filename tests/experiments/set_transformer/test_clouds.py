"""Classes of point clouds: surfaces by their equations, poses, resident clouds, what is evaluated and Table 4."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.set_transformer import clouds as config_file
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError
from experiments.harness.findings import said
from experiments.harness.launch import split_evaluation
from experiments.harness.results import Result
from experiments.set_transformer.clouds import experiment as clouds
from experiments.set_transformer.clouds import figures
from experiments.set_transformer.clouds.findings import FINDINGS
from experiments.set_transformer.clouds.tables import TABLES, run_table
from experiments.tasks import surfaces
from experiments.tasks.clouds import Clouds, ResidentClouds, Surfaces, rotation
from tests.experiments.data.test_modelnet import OFF, write
from tests.experiments.evaluating import built

TASK = Clouds(points=50, noise=0.0, scale=(1.0, 1.0), turn=True, upright=False)
TEST = Surfaces(False)
# Class -> what is 0 at all of its points, whatever its form.
EQUATIONS = {
    "sphere": lambda x, y, z: x**2 + y**2 + z**2 - 1,
    "hemisphere": lambda x, y, z: np.abs(x**2 + y**2 + z**2 - 1) + np.minimum(z, 0),
    "cylinder": lambda x, y, z: x**2 + y**2 - 1,
    "disc": lambda x, y, z: np.abs(z) + np.maximum(x**2 + y**2 - 1, 0),
    "helix": lambda x, y, z: x**2 + y**2 - 1,
    "box": lambda x, y, z: np.max([np.abs(x), np.abs(y), np.abs(z) / np.abs(z).max()], 0) - 1,
    "tetrahedron": lambda x, y, z: np.min([1 - x - y + z, 1 - x + y - z, 1 + x - y - z, 1 + x + y + z], 0),
}


@pytest.fixture(scope="module")
def drawn():
    """4000 points of every surface, [classes, 4000, 3]."""
    draw = jax.jit(jax.vmap(lambda label: surfaces.draw(jax.random.key(0), label, 4000)))
    return dict(zip(surfaces.SURFACES, np.asarray(draw(jnp.arange(len(surfaces.SURFACES))))))


@pytest.mark.parametrize("name", EQUATIONS)
def test_points_are_on_their_surface(drawn, name):
    np.testing.assert_allclose(EQUATIONS[name](*drawn[name].T), 0, atol=1e-3)
    assert np.linalg.matrix_rank(drawn[name] - drawn[name].mean(0), tol=1e-3) == (2 if name == "disc" else 3)


def test_surfaces_of_a_form_and_uniform_points(drawn):
    x, y, z = drawn["torus"].T
    thin = np.abs(z).max()
    np.testing.assert_allclose((np.hypot(x, y) - 1) ** 2 + z**2, thin**2, atol=1e-3)
    x, y, z = drawn["cone"].T
    assert np.corrcoef(np.hypot(x, y), z)[0, 1] == pytest.approx(-1, abs=1e-4)
    x, y, z = drawn["saddle"].T
    assert np.corrcoef(x**2 - y**2, z)[0, 1] == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose((drawn["sphere"] ** 2).mean(0), 1 / 3, atol=0.02)  # uniform by area
    assert np.hypot(*drawn["disc"].T[:2]).mean() == pytest.approx(2 / 3, abs=0.02)
    np.testing.assert_allclose(drawn["tetrahedron"].mean(0), 0, atol=0.05)


def test_a_rotation_keeps_lengths_and_turns_in_any_direction():
    turns = np.asarray(jax.jit(jax.vmap(rotation))(jax.random.split(jax.random.key(0), 3000)))
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), np.broadcast_to(np.eye(3), turns.shape), atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(turns), 1, atol=1e-5)
    np.testing.assert_allclose(turns.mean(0), 0, atol=0.05)
    np.testing.assert_allclose((turns**2).mean(0), 1 / 3, atol=0.03)


def test_clouds_are_standardised_and_those_to_train_on_are_turned_around_the_third_axis():
    keys = jax.random.split(jax.random.key(0), 500)
    made = jax.device_get(jax.jit(jax.vmap(lambda key: TASK.sample(key, Surfaces(True))))(keys))
    np.testing.assert_allclose(made.x.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose((made.x**2).mean((1, 2)), 1, rtol=1e-4)
    assert set(made.truth.tolist()) == set(range(len(surfaces.SURFACES)))
    disc = made.truth == list(surfaces.SURFACES).index("disc")
    assert np.abs(made.x[disc][..., 2]).max(1).min() > 1e-3
    upright = dataclasses.replace(TASK, upright=True)
    flat = jax.jit(jax.vmap(lambda key: upright.sample(key, Surfaces(True))))(keys)
    np.testing.assert_allclose(flat.x[flat.truth == list(surfaces.SURFACES).index("disc")][..., 2], 0, atol=1e-5)
    points = np.random.default_rng(0).normal(size=(3, 50, 3)).astype(np.float32)
    sample = jax.jit(jax.vmap(TASK.sample, (0, None)))
    own, turned = (
        sample(keys[:40], ResidentClouds(jnp.asarray(points), jnp.arange(3), train)) for train in (False, True)
    )
    for one, other, label in zip(np.asarray(own.x), np.asarray(turned.x), np.asarray(own.truth)):
        whole = points[label] - points[label].mean(0)
        whole /= np.sqrt((whole**2).mean())
        np.testing.assert_allclose(np.sort(one[:, 2]), np.sort(whole[:, 2]), atol=1e-4)
        np.testing.assert_allclose(other[:, 2], one[:, 2], atol=1e-5)
        np.testing.assert_allclose(np.hypot(*other[:, :2].T), np.hypot(*one[:, :2].T), atol=1e-4)
    assert np.abs(turned.x - own.x).max() > 0.5 and set(np.asarray(own.truth).tolist()) == {0, 1, 2}


def test_each_axis_has_a_factor_surfaces_have_noise_and_points_are_drawn_anew():
    points = jnp.asarray(np.random.default_rng(0).normal(size=(1, 50, 3)), jnp.float32)
    cloud = lambda train: ResidentClouds(points, jnp.zeros(1, int), train)  # noqa: E731
    wide = dataclasses.replace(TASK, scale=(0.5, 2.0))
    own, turned = (np.asarray(wide.sample(jax.random.key(1), cloud(train)).x) for train in (False, True))
    matrix = np.linalg.lstsq(own, turned, rcond=None)[0]
    factors = np.sqrt(np.diag(matrix.T @ matrix))
    np.testing.assert_allclose(matrix.T @ matrix, np.diag(factors**2), atol=1e-4)
    assert np.ptp(factors) > 0.05 and factors.min() >= 0.5 and factors.max() <= 2
    noisy = dataclasses.replace(TASK, upright=True, noise=0.1)
    made = jax.jit(jax.vmap(lambda key: noisy.sample(key, Surfaces(True))))(jax.random.split(jax.random.key(0), 100))
    disc = np.asarray(made.truth) == list(surfaces.SURFACES).index("disc")
    assert np.asarray(made.x)[disc][..., 2].std() > 0.1
    few = dataclasses.replace(TASK, points=10)
    one, other = (np.sort(few.sample(jax.random.key(seed), cloud(False)).x[:, 2]) for seed in (0, 1))
    assert not np.allclose(one, other, atol=1e-2)


def test_only_surfaces_to_train_on_are_trained_on():
    data = build("model=rff_max,preset=tiny").data
    assert {split: part.training for split, part in data.items()} == dict(train=True, validation=False, test=False)


build = functools.partial(built, clouds, config_file)


def test_clouds_of_files_are_split(tmp_path):
    for name in ("bed", "chair"):
        for part, count in (("train", 5), ("test", 2)):
            for number in range(count):
                write(tmp_path / name / part / f"{number}.off", OFF)
    changes = {"data.resident": 60, "model.out_features": 2}
    made = build("preset=tiny,data=off", str(tmp_path), **changes)
    assert {split: part.points.shape for split, part in made.data.items()} == {
        "train": (9, 60, 3),
        "validation": (1, 60, 3),
        "test": (4, 60, 3),
    }
    assert made.data["train"].training and not made.data["validation"].training
    with pytest.raises(ConfigError, match="config.data.validation_fraction: leaves none of 10"):
        build("preset=tiny,data=off", str(tmp_path), **changes | {"data.validation_fraction": 0.99})
    with pytest.raises(ConfigError, match="config.model.out_features: 40 in a row for 2 classes"):
        build("preset=tiny,data=off", str(tmp_path), **{"data.resident": 60})


def test_each_test_cloud_is_judged_once(tmp_path):
    """Clouds of one class each, by a network that says class 3: it is right once, whatever is drawn."""
    made = build("model=rff_max,preset=tiny,data=surfaces")
    points = jnp.asarray(np.random.default_rng(0).normal(size=(10, 30, 3)), jnp.float32)
    test, key = ResidentClouds(points, jnp.arange(10), False), jax.random.key(0)
    still = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), jax.eval_shape(made.init, key))
    still["params"]["head"]["layer_1"]["bias"][3] = 4
    assert jax.jit(made.evaluate)(still, test, key)["accuracy"].tolist() == [0, 0, 0, 1, *[0] * 6]  # of 20 asked for
    few = build("model=rff_max,preset=tiny,data=surfaces", **{"evaluation.tasks": 4, "evaluation.example_tasks": 9})
    assert jax.jit(few.evaluate)(still, test, key)["accuracy"].shape == (4,)
    shown = jax.jit(few.examples)(still, test, key)["truth"].tolist()
    assert len(set(shown)) == 9 and shown != sorted(shown)


@pytest.mark.parametrize(
    "arg, changes, error, message",
    [
        ("preset=tiny", {"task.points": 0}, ConfigError, "config.task.points: expected int, at least 1"),
        ("preset=paper,data=off", {"data.resident": 99}, ConfigError, "config.data.resident: 99 points"),
        ("preset=paper", {}, DataError, "pass --data_dir"),
    ],
)
def test_settings_are_checked(arg, changes, error, message):
    with pytest.raises(error, match=message):
        build(arg, **changes)


def test_a_network_that_says_one_class_is_right_where_it_is():
    made, key = build("model=rff_max,preset=tiny"), jax.random.key(0)
    still = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), jax.eval_shape(made.init, key))
    still["params"]["head"]["layer_1"]["bias"][3] = 4
    truth = jax.jit(jax.vmap(lambda key: made.sample(key, TEST).truth))(jax.random.split(key, 20))
    found = jax.jit(made.evaluate)(still, TEST, key)
    np.testing.assert_array_equal(found["accuracy"], truth == 3)
    np.testing.assert_allclose(found["cross_entropy"], np.log(np.exp(4) + 9) - 4 * (truth == 3), rtol=1e-5)
    assert 0 < found["accuracy"].sum() < 20


def test_dropout_acts_on_what_is_trained_on_alone():
    made, key = build("model=rff_max,preset=tiny"), jax.random.key(0)
    variables = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.1, np.float32), jax.eval_shape(made.init, key))
    variables["params"]["head"]["layer_1"]["kernel"][:, :5] = 0.5

    def losses(data):
        batch = jax.vmap(lambda key: made.sample(key, data))(jax.random.split(key, 4))
        assert batch.training == data.training
        return [made.loss(variables, batch, jax.random.key(seed))[0] for seed in range(3)]

    own, shown = losses(Surfaces(True)), losses(TEST)
    assert len(set(map(float, own))) == 3 and len(set(map(float, shown))) == 1


def test_5000_points_have_layers_of_their_own():
    """Supplement, Section 2.5."""
    zaheer = config_file.get_config("model=rffp_max,points=100,preset=paper").model
    assert (zaheer.pooling, zaheer.encoder_layers, tuple(zaheer.head)) == ("max", 4, (256,))
    cells = [
        config_file.get_config(f"model={m},points={n},preset=paper")
        for m in ("isab16_pma", "rff_max")
        for n in ("1000", "5000")
    ]
    assert [(c.model.dim, c.model.encoder_layers, c.optimizer.weight_decay) for c in cells] == [
        (256, 2, 0.0),
        (512, 1, 1e-7),
        (256, 4, 0.0),
        (256, 4, 1e-7),
    ]


def test_what_is_evaluated_table_4_and_figure(tmp_path):
    config = config_file.get_config("model=rff_max,preset=tiny")
    made = clouds.build(config, split_evaluation(config.evaluation)[1], None)
    variables, key = jax.eval_shape(made.init, jax.random.key(0)), jax.random.key(0)
    found, shown = (
        jax.eval_shape(lambda variables, f=f: f(variables, TEST, key), variables)
        for f in (made.evaluate, made.examples)
    )
    assert {name: leaf.shape for name, leaf in found.items()} == {"accuracy": (20,), "cross_entropy": (20,)}
    np.savez(
        tmp_path / "examples.npz",
        **{"x": np.random.default_rng(0).normal(size=shown["x"].shape), "truth": np.arange(10)},
        **{"trained/prediction": np.arange(10) // 2},
    )
    content = {
        **{"name": config.name, "axes": config.axes.to_dict(), "config": config.to_dict(), "facts": made.facts},
        **{"seeds": [0], "steps": 20, "best_step": 10},
        "metrics": {"trained/accuracy": {"mean": 0.25, "sem": 0.01, "median": 0, "n": 20, "seeds": [0.25]}},
    }
    result = Result(tmp_path, content)
    other = Result(tmp_path, content | {"axes": result.axes | {"model": "isab16_pma", "points": "1000"}})
    table = TABLES["set_transformer/table4"]([result, other])
    rows = dict(table.rows)
    assert rows["rFF + Pooling (max)"][0].mean == 25 and rows["rFF + Pooling (max)"][1].text() == "79.51 ± 1.66"
    assert rows["ISAB (16) + PMA"][2].mean == 25 and rows["ISAB (16) + PMA"][3].text() == "86.62 ± 1.49"
    assert not rows["ISAB (16) + PMA"][0].known and TABLES["set_transformer/table4"]([]) is None
    quoted = [cell if isinstance(cell, str) else cell.text() for cell in rows["rFF + Pooling (Zaheer et al.)"]]
    assert quoted == ["", "(none)", "", "83 ± 1", "", "(none)"]
    assert [cell.text() for cell in rows["rFFp-max + Pooling"][1::2]] == ["82 ± 2", "87 ± 1", "90.0 ± 0.3"]
    assert "rFF + Pooling (Zaheer et al.) and rFFp-max + Pooling quoted from Zaheer et al. 2017." in table.caption
    (name, (_, theirs)), *more = run_table(Result(tmp_path, content)).rows
    assert (name, theirs.text(), more) == ("rFF + Pooling (max)", "79.51 ± 1.66", [])
    assert "steps: 10 of 20, " in table.caption and "surfaces of 10 kinds" in table.caption
    of = lambda points, data: Result(  # noqa: E731
        tmp_path / points, content | {"axes": result.axes | {"points": points, "data": data}}
    )
    rows = dict(TABLES["set_transformer/table4"]([result, of("1000", "hdf5"), of("5000", "off")]).rows)
    assert [cell.known for cell in rows["rFF + Pooling (max)"][::2]] == [False, True, True]
    assert figures.run_figure(result, tmp_path).stat().st_size > 10_000


def test_attention_is_compared_with_the_maximum_cell_by_cell(tmp_path):
    """Attention is ahead at 100 points behind both encoders, and nowhere else; the paper's leads there are errors."""
    ahead = {"100": 0.9, "1000": 0.2, "5000": 0.3}
    results = []
    for model in ("rff_max", "rff_pma", "isab16_max", "isab16_pma"):
        for points, accuracy in ahead.items():
            config = config_file.get_config(f"model={model},points={points},preset=quick")
            mean = accuracy if model.endswith("pma") else 0.5
            content = {
                **{"name": config.name, "axes": config.axes.to_dict(), "config": config.to_dict()},
                **{"facts": {"data": "surfaces"}, "seeds": [0], "steps": config.train.steps, "best_step": 10},
                "metrics": {"trained/accuracy": {"mean": mean, "sem": 0.01, "median": 0, "n": 20, "seeds": [mean]}},
            }
            results.append(Result(tmp_path / f"{model}{points}", content))
    ((finding,), unsaid) = said(FINDINGS["set_transformer/table4"], results)
    assert unsaid is None and "rFF + PMA 90 (50), 20 (50) and 30 (50); ISAB (16) + PMA 90 (50)" in finding.text
    assert "surfaces, 1000, 1000 and 300 steps for 100, 1000 and 5000 points" in finding.text
    assert "attention is ahead in 2 and the maximum in 4 of these 6 pairs" in finding.text
    assert finding.text.endswith("in the paper, on ModelNet40, in 0 and 3.")
    assert said(FINDINGS["set_transformer/table4"], results[1:])[0] == []
