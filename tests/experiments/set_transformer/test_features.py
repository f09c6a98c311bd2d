"""Clustering of features: the law of its sets, its oracle, features in a file, a run at preset tiny and its table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from configs.set_transformer import features as config_file
from experiments import catalogue
from experiments.data import cifar, image_features
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError
from experiments.harness.launch import Options, launch
from experiments.harness.results import Result
from experiments.set_transformer.features import experiment as features
from experiments.set_transformer.features.tables import TABLES
from experiments.tasks.labelled_features import Features, LabelledFeatures
from kvq_jax.models.mixture import log_likelihood
from tests.experiments.data.test_cifar import records
from tests.experiments.evaluating import built

TASK = LabelledFeatures(min_size=4, max_size=7, clusters=2)
MEMBER = np.array([[0, 1, 2, 3, -1], [4, 5, 6, 7, 8], [9, 10, 11, -1, -1]])


def test_sets_are_drawn_uniformly_from_all_features_of_their_classes():
    feature = jnp.stack([jnp.arange(1.0, 13), jnp.zeros(12)], -1)
    data = Features(feature, jnp.asarray(MEMBER))
    sets = jax.device_get(jax.jit(jax.vmap(TASK.sample, (0, None)))(jax.random.split(jax.random.key(0), 8000), data))
    number, component = np.int32(sets.x[..., 0]) - 1, sets.truth.component
    class_of = np.repeat([0, 1, 2], [4, 5, 3])
    pairs = []
    for own, there, kind in zip(number, sets.mask, component):
        own, kind = own[there], kind[there]
        assert len(set(own.tolist())) == len(own) and (number[0][~sets.mask[0]] == -1).all()
        found = [set(class_of[own[kind == one]].tolist()) for one in (0, 1)]
        assert all(len(classes) <= 1 for classes in found) and not found[0] & found[1]
        pairs += [tuple(sorted(found[0] | found[1]))]
    often = np.array([pairs.count(pair) for pair in ((0, 1), (0, 2), (1, 2))]) / 8000
    assert often == pytest.approx(np.full(3, 1 / 3), abs=0.03)
    first = np.bincount(number[:, 0], minlength=12) / 8000
    assert first == pytest.approx((np.array([1 / 9 + 1 / 7, 1 / 9 + 1 / 8, 1 / 7 + 1 / 8]) / 3)[class_of], abs=0.015)


def test_the_oracle_has_the_moments_of_the_classes_that_are_there():
    rng = np.random.default_rng(0)
    data = Features(jnp.asarray(rng.normal(size=(12, 3)), jnp.float32), jnp.asarray(MEMBER))

    @jax.jit
    def filled(key, data):
        drawn = TASK.draw(key, data)
        return TASK.fill(drawn, (7, 0), (5, 0)), TASK.fill(drawn, (5, 0), None)

    part, whole = filled(jax.random.key(1), data)
    for name, one, other in zip(whole.truth.mixture._fields, part.truth.mixture, whole.truth.mixture):
        np.testing.assert_allclose(one, other, rtol=1e-5, err_msg=name)
    x, kind = np.asarray(whole.x), np.asarray(whole.truth.component)
    for one in (0, 1):
        own = x[kind == one]
        np.testing.assert_allclose(whole.truth.mixture.mean[one], own.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(whole.truth.mixture.std[one], np.maximum(own.std(0), 1e-3), rtol=1e-4)
        np.testing.assert_allclose(np.exp(whole.truth.mixture.log_weight[one]), len(own) / 5, rtol=1e-5)
    assert log_likelihood(part.truth.mixture, part.x, part.mask) == pytest.approx(
        float(log_likelihood(whole.truth.mixture, whole.x)), rel=1e-5
    )


build = functools.partial(built, features, config_file)


@pytest.fixture
def folder(tmp_path):
    """CIFAR-100 with three training images of each class, and features of theirs."""
    for split, each in (("train", 3), ("test", 1)):
        (tmp_path / f"{split}.bin").write_bytes(records(each)[2])
    data = cifar.load("archive", str(tmp_path))
    own = {
        split: np.random.default_rng(0).normal(5, 2, (len(getattr(data, split)["label"]), 6))
        for split in ("train", "test")
    }
    made = image_features.ImageFeatures(own, {"network": "ResNet-7", "data": data.name})
    image_features.write(tmp_path / "made.npz", made, data)
    return tmp_path


def test_features_of_a_file_are_centred_and_scaled_by_one_number(folder):
    changes = {"task.min_size": 4, "task.max_size": 12, "data.file": "made.npz", "model.out_features": 13}
    made = build("preset=tiny,data=cifar100", str(folder), **changes)
    found = made.data["train"]
    assert found.feature.shape == (300, 6) and found.member.shape == (100, 3)
    np.testing.assert_allclose(found.feature.mean(0), 0, atol=1e-6)
    assert np.mean(found.feature**2) == pytest.approx(1) and np.std(found.feature.std(0)) > 1e-3
    assert made.facts["features"] == "ResNet-7" and made.data["test"] is found
    drawn = jax.eval_shape(made.sample, jax.random.key(0), found)
    assert drawn.x.shape == (12, 6)


@pytest.mark.parametrize(
    "arg, changes, error, message",
    [
        ("preset=tiny", {"task.clusters": 11}, ConfigError, "config.task.clusters: 11 of 10 classes"),
        ("preset=tiny", {"task.max_size": 900}, ConfigError, "900 of 4 classes with 7.. images in all"),
        ("preset=tiny", {"model.out_features": 100}, ConfigError, "100 numbers for a component of 64 dimensions"),
        ("preset=tiny,images=unseen", {}, ConfigError, "digits have no images apart"),
        ("preset=tiny", {"data.test_images": "tset"}, ConfigError, "did you mean 'test'"),
        ("preset=tiny", {"data.name": "digit"}, ConfigError, "did you mean 'digits'"),
        ("preset=paper", {}, DataError, "--data_dir"),
    ],
)
def test_what_cannot_be_clustered_is_refused(arg, changes, error, message):
    with pytest.raises(error, match=message):
        build(arg, **changes)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    config = config_file.get_config("model=rff_mean,preset=tiny")
    return launch(config, tmp_path_factory.mktemp("run") / "run", Options(), Console(quiet=True), catalogue.show)


def test_a_tiny_run_and_its_table(result):
    found = {name.removeprefix("trained/"): summary["mean"] for name, summary in result.metrics.items()}
    assert found["ari_oracle"] > 0.7 and found["ari_oracle"] > found["ari0"] and found["ll0"] < found["ll1"]
    assert "data/x" in result.examples and "x" not in result.examples  # what scripts.collect leaves out
    table = TABLES["set_transformer/features"]([result])
    rows = dict(table.rows)
    assert rows["rFF + Pooling (mean)"][0].mean == found["ari0"] and rows["rFF + PMA"][3].text() == "0.7670 ± 0.0231"
    assert rows["EM, scikit-learn"][0].mean == found["ari_em"] and rows["EM, scikit-learn"][1].text() == "0.9150"
    assert not rows["SAB + PMA"][0].known and rows["ISAB (32) + PMA"][3].text() == "0.9119 ± 0.0052"
    assert "scikit-learn digits" in table.caption and (result.folder / "figure.png").stat().st_size > 10_000
    assert TABLES["set_transformer/features"]([]) is None


def test_test_sets_of_images_that_are_not_trained_on_have_a_table_of_their_own(result):
    trained = {"trained": {"test_accuracy": 0.3951}}
    content = result.content | {"facts": result.content["facts"] | trained}
    told = TABLES["set_transformer/features"]([Result(result.folder, content)]).caption
    assert "pixels, right on 39.5% of the test images; 20 to 40" in told and "the encoder was told, as in" in told
    config = result.config | {"data": result.config["data"] | {"test_images": "test"}}
    changed = {"axes": result.axes | {"images": "unseen"}, "config": config}
    other = Result(result.folder, content | changed)
    assert TABLES["set_transformer/features"]([other]) is None
    caption = TABLES["set_transformer/features_unseen"]([result, other]).caption
    assert "of which nobody was told a class" in caption and "was told, as in" not in caption
    earlier = Result(result.folder, content | {"axes": {k: v for k, v in result.axes.items() if k != "images"}})
    assert TABLES["set_transformer/features"]([earlier]) is not None
