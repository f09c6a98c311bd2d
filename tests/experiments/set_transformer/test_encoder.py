"""The encoder of images: what it trains and is tested on, a run, its table, and features of its run in a file."""

import functools
import io
import json

import jax
import numpy as np
import pytest
from rich.console import Console

import kvq_jax
from configs.set_transformer import encoder as config_file
from configs.set_transformer import features as features_config
from experiments import catalogue
from experiments.data import cifar, image_features
from experiments.harness.errors import ConfigError, UserError
from experiments.harness.launch import Options, launch
from experiments.set_transformer.encoder import experiment as encoder
from experiments.set_transformer.encoder.tables import TABLES
from experiments.set_transformer.features import experiment as features
from kvq_jax.nn.resnet import imagenet_input
from tests.experiments.data.test_cifar import records
from tests.experiments.evaluating import built


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """CIFAR-100 with three training images of each class and two test images."""
    folder = tmp_path_factory.mktemp("data")
    for seed, (split, each) in enumerate((("train", 3), ("test", 2))):
        (folder / f"{split}.bin").write_bytes(records(each, seed)[2])
    return folder


@pytest.fixture(scope="module")
def result(folder):
    """A run of two steps on it."""
    config = config_file.get_config("preset=tiny,data=cifar100")
    config.train.update(steps=4, log_every=2, validate_every=4, checkpoint_every=2, seeds=1)
    config.optimizer.warmup_steps = 1
    return launch(config, folder / "run", Options(str(folder)), Console(file=io.StringIO()), catalogue.show)


build = functools.partial(built, encoder, config_file)


def test_training_and_validation_share_the_training_images_and_no_test_image_is_among_them(folder):
    made = build("preset=quick", str(folder))
    data = cifar.load("archive", str(folder))
    keys = {
        split: [(image.tobytes(), int(label)) for image, label in zip(np.asarray(part.image), part.label)]
        for split, part in made.data.items()
    }
    original = {
        split: [(image.tobytes(), int(label)) for image, label in zip(of["image"], of["label"])]
        for split, of in (("train", data.train), ("test", data.test))
    }
    assert sorted(keys["train"] + keys["validation"]) == sorted(original["train"])
    assert keys["test"] == original["test"] and not set(keys["test"]) & set(keys["train"] + keys["validation"])
    assert made.facts["images"] == {"train": 285, "validation": 15, "test": 200}
    assert {split: part.training for split, part in made.data.items()} == dict(train=True, validation=False, test=False)


def test_its_accuracy_is_that_of_each_test_image_once(folder, result):
    model, variables = kvq_jax.load(result.folder)
    data = cifar.load("archive", str(folder))
    logits = np.concatenate(
        [jax.jit(model.apply)(variables, imagenet_input(part, 32))[1] for part in np.split(data.test["image"], 4)]
    )
    own = result.metrics["trained/accuracy"]
    assert own["n"] == 200 and own["mean"] == pytest.approx((logits.argmax(-1) == data.test["label"]).mean())
    np.testing.assert_array_equal(result.examples["trained/prediction"][0], logits.argmax(-1))
    (cells,) = dict(TABLES["set_transformer/encoder"]([result]).rows).values()
    assert cells[0].mean == pytest.approx(100 * own["mean"]) and cells[1].text() == "68.54"
    assert (result.folder / "figure.png").stat().st_size > 5_000 and TABLES["set_transformer/encoder"]([]) is None


def test_features_of_a_run_are_what_it_has_before_the_classes(folder, result):
    data = cifar.load("archive", str(folder))
    made = image_features.compute(result.folder, data, batch_size=64)
    model, variables = kvq_jax.load(result.folder)
    expected, _ = jax.jit(model.apply)(variables, imagenet_input(data.test["image"][[0, 199]], 32))
    np.testing.assert_allclose(made.features["test"][[0, 199]], expected, rtol=1e-4, atol=1e-5)
    assert made.features["train"].shape == (300, 8) and made.provenance["input_size"] == 32
    accuracy = result.metrics["trained/accuracy"]["mean"]
    assert made.provenance["trained"] == {"preset": "tiny", "steps": 4, "seed": 0, "test_accuracy": accuracy}
    image_features.write(folder / "made.npz", made, data)
    changes = {"task.min_size": 4, "task.max_size": 6, "data.file": "made.npz", "model.out_features": 17}
    clusters = built(features, features_config, "preset=tiny,data=cifar100,images=unseen", str(folder), **changes)
    train, test = clusters.data["train"], clusters.data["test"]
    assert clusters.facts["trained"]["test_accuracy"] == accuracy and clusters.data["validation"] is train
    mean, scale = made.features["train"].mean(0), made.features["train"].std(0)
    scale = np.sqrt((scale**2).mean())  # of the training images, for both
    for split, own in (("train", train), ("test", test)):
        np.testing.assert_allclose(own.feature, (made.features[split] - mean) / scale, rtol=1e-3, atol=1e-4)
    assert test.member.shape == (100, 2) and (data.test["label"][test.member] == np.arange(100)[:, None]).all()


def test_a_run_of_other_data_or_of_another_experiment_is_refused(folder, result, tmp_path):
    other = {name: value for name, value in result.content.items() if name != "digest"} | {"name": "intention/sine"}
    (tmp_path / "result.json").write_text(json.dumps(other))
    with pytest.raises(UserError, match="is a run of intention/sine, not of set_transformer/encoder"):
        image_features.compute(tmp_path, cifar.load("archive", str(folder)), batch_size=64)
    data = cifar.load("archive", str(folder))._replace(name="CIFAR-100")
    with pytest.raises(UserError, match="was trained on CIFAR-100 .3/2 subset., not on CIFAR-100$"):
        image_features.compute(result.folder, data, batch_size=64)
    with pytest.raises(UserError, match="cannot read .*result.json"):
        image_features.compute(folder, data, batch_size=64)


@pytest.mark.parametrize(
    "arg, changes, message",
    [
        ("preset=tiny", {"model.classes": 100}, "100 for the 10 classes of scikit-learn digits"),
        ("preset=tiny", {"data.name": "cifar10"}, "did you mean 'cifar100'"),
        ("preset=tiny", {"task.padding": -1}, "at least 0"),
        ("preset=tiny", {"data.validation_fraction": 0.9999}, "validation_fraction: leaves none of 1500 images"),
    ],
)
def test_what_cannot_be_trained_is_refused(arg, changes, message):
    with pytest.raises(ConfigError, match=message):
        build(arg, **changes)
