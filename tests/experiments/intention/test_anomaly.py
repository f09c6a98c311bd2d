"""Set anomaly detection: what a set is, which images meet, what features are fitted on, a tiny run, Table 3."""

import csv
import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from configs import common
from configs.intention import anomaly as config_file
from experiments import catalogue
from experiments.data import cifar, sources
from experiments.data.dataset import DataSet
from experiments.data.errors import DataError
from experiments.harness.errors import ConfigError
from experiments.harness.launch import Options, launch, split_evaluation
from experiments.harness.results import Result
from experiments.harness.step import sample_batch
from experiments.harness.tables import render
from experiments.intention.anomaly import data as anomaly_data
from experiments.intention.anomaly import experiment as anomaly
from experiments.intention.anomaly import tables
from experiments.intention.anomaly.data import SPLITTINGS, DataSettings, RawPixelsPCA
from experiments.tasks.anomaly import Anomaly
from kvq_jax.ops import OPS
from tests.experiments.data.test_cifar import records
from tests.kvq_jax.nn.drawing import drawn
from tests.kvq_jax.ops.reference import LABELS


def of_classes(counts, training=False):
    """Images whose one feature is their number, of so many in each class, in a mixed order."""
    label = np.random.default_rng(0).permutation(np.repeat(10 * np.arange(len(counts)), counts))
    return label, anomaly_data.images(np.arange(len(label), dtype=np.float32)[:, None], label, training)


def draw(images, number, set_size, seed=0):
    sample = jax.jit(jax.vmap(Anomaly(set_size).sample, (0, None)))
    return jax.device_get(sample(jax.random.split(jax.random.key(seed), number), images))


@settings(max_examples=5, deadline=None)
@given(counts=st.lists(st.integers(4, 9), min_size=2, max_size=5), seed=st.integers(0, 1000))
def test_a_set_is_of_one_class_but_for_its_anomaly_and_has_no_image_twice(counts, seed):
    label, images = of_classes(counts)
    sets = draw(images, 30, 5, seed)
    np.testing.assert_array_equal(sets.feature[..., 0], sets.index)
    for index, place in zip(sets.index, sets.anomaly):
        assert len(set(index.tolist())) == 5
        others = np.delete(label[index], place)
        assert len(set(others.tolist())) == 1 and label[index[place]] != others[0]


def test_sets_are_drawn_as_the_tutorial_draws_them():
    """Four draws are uniform: the anomaly, the class of the others, their images, and the place of the anomaly."""
    label, images = of_classes([4, 6, 10])
    sets = draw(images, 20_000, 4)
    odd = sets.index[np.arange(20_000), sets.anomaly]
    np.testing.assert_allclose(np.bincount(odd) / 20_000, np.full(20, 1 / 20), atol=0.008)
    np.testing.assert_allclose(np.bincount(sets.anomaly) / 20_000, np.full(4, 1 / 4), atol=0.015)
    rest = sets.index[np.arange(20_000), (sets.anomaly + 1) % 4]
    pairs = np.bincount(label[odd] // 10 * 3 + label[rest] // 10, minlength=9).reshape(3, 3) / 20_000
    np.testing.assert_allclose(pairs, [[0, 0.1, 0.1], [0.15, 0, 0.15], [0.25, 0.25, 0]], atol=0.012)
    largest = np.bincount(rest[label[rest] == 20], minlength=20)[label == 20]
    np.testing.assert_allclose(largest / largest.sum(), np.full(10, 0.1), atol=0.02)


def data_of(per_class):
    """Images of noise in 20 classes: so many training images of each, and half as many test images."""
    rng, splits = np.random.default_rng(0), {}
    for name, number in (("train", per_class), ("test", per_class // 2)):
        label = rng.permutation(np.repeat(np.arange(20), number)).astype(np.int32)
        splits[name] = {"image": rng.integers(0, 256, (len(label), 4, 4, 3), np.uint8), "label": label}
    return DataSet("noise", **splits)


@pytest.mark.parametrize("kind", SPLITTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_splits_never_share_an_image(kind, seed):
    data = data_of(20)
    parts = SPLITTINGS[kind](DataSettings("noise", "", kind, 0.1, 0.25, seed), data)
    label = np.concatenate([data.train["label"], data.test["label"]])
    together = np.concatenate(list(parts.values()))
    assert list(parts) == ["train", "validation", "test"] and sorted(together) == list(range(600))
    classes = {name: set(label[part].tolist()) for name, part in parts.items()}
    if kind == "stratified":
        assert (np.bincount(label[parts["validation"]]) == 2).all() and (np.bincount(label[parts["train"]]) == 18).all()
        assert parts["test"].min() == 400 and parts["validation"].max() < 400
    else:
        assert [len(numbers) for numbers in classes.values()] == [13, 2, 5] and len(set.union(*classes.values())) == 20
    other = SPLITTINGS[kind](DataSettings("noise", "", kind, 0.1, 0.25, seed + 5), data)
    assert not np.array_equal(other["validation"], parts["validation"])


def test_components_are_those_of_the_training_images_alone():
    data = sources.load("digits", "digits", None)
    train = np.arange(800)
    features, facts = RawPixelsPCA(10)(data, train, None)
    pixels = np.concatenate([data.train["image"], data.test["image"]]).reshape(1797, 64) / 255
    centred = pixels - pixels[train].mean(0)
    values, vectors = np.linalg.eigh(np.cov(pixels[train], rowvar=False))
    projected = centred @ vectors[:, ::-1][:, :10] / np.sqrt(values[::-1][:10].mean())
    np.testing.assert_allclose(np.abs(features), np.abs(projected), atol=1e-2)  # a component has no sign
    assert facts["explained_variance"] == pytest.approx(values[-10:].sum() / values.sum(), rel=1e-4)


def build(arg="preset=tiny", data_dir=None, evaluation=(), **changes):
    config = config_file.get_config(arg)
    config.update(changes)
    return anomaly.build(config, split_evaluation(config.evaluation)[1] | dict(evaluation), data_dir)


def test_where_labels_mean_nothing_an_untrained_model_is_right_by_chance():
    """No place tells the anomaly. With true labels untrained attention leans towards, or away from, what differs."""
    made = build(evaluation={"tasks": 4000})
    test = made.data["test"]
    mixed = anomaly_data.images(test.feature, np.random.default_rng(0).permutation(test.label), training=False)
    values = jax.jit(made.evaluate)(made.init(jax.random.key(0)), mixed, jax.random.key(1))
    assert np.mean(values["accuracy"]) == pytest.approx(0.1, abs=0.015)
    assert np.mean(values["cross_entropy"]) > np.log(10) and set(np.unique(values["accuracy"])) == {0, 1}


def test_only_training_drops_out():
    made = build()
    variables, loss = drawn(made.init, jax.random.key(0)), jax.jit(made.loss)
    for split, same in (("train", False), ("validation", True)):
        batch = jax.jit(lambda data: sample_batch(made, jax.random.key(1), data, 4))(made.data[split])
        losses = [float(loss(variables, batch, jax.random.key(seed))[0]) for seed in (2, 3)]
        assert (losses[0] == losses[1]) is same


@pytest.mark.parametrize(
    "arg, source, features",
    [
        ("preset=paper", "archive", "resnet34"),
        ("preset=paper,source=digits", "digits", "raw_pixels_pca"),
        ("preset=paper,features=raw_pixels_pca", "archive", "raw_pixels_pca"),
        ("preset=quick", "digits", "raw_pixels_pca"),
        ("preset=quick,source=archive", "archive", "raw_pixels_pca"),
    ],
)
def test_the_paper_preset_alone_has_the_papers_data(arg, source, features):
    config = config_file.get_config(arg)
    assert (config.data.source, config.features.name, config.axes.source, config.axes.features) == (
        source,
        features,
    ) * 2


def test_every_op_but_those_of_labels_can_be_the_transformers():
    assert set(common.operators()) == OPS.keys() - LABELS
    with pytest.raises(ValueError, match="not that of model=informer"):
        config_file.get_config("model=informer,op=linear")
    batch = {"train": of_classes([9, 9], True)[1], "validation": of_classes([9, 9])[1], "test": of_classes([9, 9])[1]}
    for op in ("own", *common.operators()):
        config = config_file.get_config(f"preset=paper,source=digits,features=raw_pixels_pca,layers=4,op={op}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(anomaly_data, "load", lambda config, data_dir: (batch, {}))
            made = anomaly.build(config, split_evaluation(config.evaluation)[1], None)
        jax.eval_shape(made.init, jax.random.key(0))


@pytest.fixture(scope="module")
def cifar_folder(tmp_path_factory):
    """CIFAR-100 of noise, 20 training and 9 test images a class, and features in the place of a ResNet-34's."""
    folder = tmp_path_factory.mktemp("data")
    for seed, (split, number) in enumerate((("train", 20), ("test", 9))):
        (folder / f"{split}.bin").write_bytes(records(number, seed)[2])
    data = cifar.load("archive", str(folder))
    labels = {f"{split}_label": getattr(data, split)["label"] for split in ("train", "test")}
    draw_features = np.random.default_rng(0).normal
    arrays = {name.removesuffix("_label"): draw_features(size=(len(own), 512)) for name, own in labels.items()}
    provenance = {"network": "ResNet-34", "data": data.name}
    for name, changes in (("cifar100_resnet34", {}), ("other", {"network": "ResNet-18"})):
        np.savez(folder / f"{name}.npz", **arrays, **labels, provenance=json.dumps(provenance | changes))
    return folder


@pytest.mark.parametrize("layers", ["1", "4"])
@pytest.mark.parametrize("model", config_file.MODELS)
def test_the_paper_preset_on_512_features(model, layers, cifar_folder):
    """Shapes of a loss and its gradient at full width, with the sets and classes of CIFAR-100."""
    arg = f"preset=paper,model={model},layers={layers}"
    made = build(arg, str(cifar_folder), data=dict(validation_fraction=0.5))
    assert made.facts["data"] == "CIFAR-100 (20/9 subset)" and made.facts["features"]["network"] == "ResNet-34"
    assert made.facts["splits"]["validation"] == {"images": 1000, "classes": 100}
    shapes = jax.eval_shape(made.init, jax.random.key(0))
    batch = jax.eval_shape(lambda key, data: sample_batch(made, key, data, 64), jax.random.key(0), made.data["train"])
    assert batch.feature.shape == (64, 10, 512) and batch.training
    loss, gradient = jax.eval_shape(
        jax.value_and_grad(lambda *args: made.loss(*args)[0]), shapes, batch, jax.random.key(0)
    )
    assert loss.shape == () and shapes["params"]["former"]["input"]["kernel"].shape == (512, 1024)


@pytest.mark.parametrize(
    "arg, changes, error, message",
    [
        ("preset=tiny", dict(task=dict(set_size=2)), ConfigError, "config.task.set_size: expected int, at least 3"),
        (
            "preset=tiny",
            dict(task=dict(set_size=40)),
            ConfigError,
            "need classes of 39; one of the validation images has",
        ),
        ("preset=tiny", dict(data=dict(validation_fraction=0.9999)), ConfigError, "leaves no image to train on"),
        ("preset=tiny", dict(data=dict(validation_fraction=1e-6)), ConfigError, "one of the validation images has 1"),
        ("preset=tiny", dict(features=dict(dimension=65)), ConfigError, "config.features.dimension: 65 of 64 pixels"),
        ("preset=tiny", dict(model=dict(layerz=1)), ConfigError, "unknown key of config.model 'layerz'"),
        ("preset=tiny", dict(data=dict(name="digitz")), ConfigError, "config.data.name 'digitz'"),
        ("preset=tiny,source=archive", {}, DataError, "CIFAR-100 .*--data_dir"),
        (
            "source=archive,features=resnet34",
            dict(features=dict(file="other.npz")),
            DataError,
            "by ResNet-18, not by ResNet",
        ),
        (
            "source=archive,features=resnet34",
            dict(features=dict(file="no.npz")),
            DataError,
            "no features .*no.npz; write them",
        ),
    ],
)
def test_settings_and_data_are_checked(arg, changes, error, message, cifar_folder):
    with pytest.raises(error, match=message):
        build(arg, str(cifar_folder) if "resnet34" in arg else None, **changes)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = config_file.get_config("model=np_former,preset=tiny")
    return launch(config, folder, Options(), Console(quiet=True), catalogue.show)


def test_a_run_of_the_tiny_preset(result):
    summary = result.metrics["trained/accuracy"]
    assert summary["mean"] > 0.15 and summary["n"] == 100  # chance is 0.1
    assert result.content["facts"]["data"] == "scikit-learn digits (8x8)"
    arrays = result.examples
    assert arrays["image"].shape == (6, 10, 8, 8) and arrays["image"].dtype == np.uint8
    np.testing.assert_allclose(arrays["trained/prediction"].sum(-1), 1, rtol=1e-5)
    assert (result.folder / "figure.png").stat().st_size > 10_000


def changed(result, model="np_former", layers=1, op="own", **facts):
    """The result as if of another model, number of layers, op or data."""
    axes = result.axes | {"model": model, "layers": str(layers), "op": op}
    config = result.config | {"axes": axes, "data": result.config["data"] | {"name": "cifar100" if facts else "digits"}}
    return Result(
        result.folder, result.content | {"axes": axes, "config": config} | {"facts": result.content["facts"] | facts}
    )


table3 = catalogue.find("tables", "intention/table3")


def test_table_3_shows_what_is_missing_and_never_mixes_data(result):
    four = changed(result, "informer", 4)
    table = table3([result, four, changed(result, "transformer", op="linear")])
    rows = dict(table.rows)
    assert list(rows) == ["NP-Former", "Lin-Transformer", "Informer", "Transformer", "σ-Informer"]
    assert list(table.columns) == [
        "accuracy, %",
        "1 layer",
        "1 layer, the paper's",
        "4 layers",
        "4 layers, the paper's",
    ]
    assert rows["NP-Former"][0].mean == 100 * result.metrics["trained/accuracy"]["mean"]
    assert rows["Informer"][2].mean is not None and rows["Informer"][3].text() == "95.1"
    assert render(table, "tex", "intention/table3").isascii()
    head = next(csv.reader(render(table, "csv", "intention/table3").splitlines()))
    assert len(set(head)) == len(head) == 1 + 2 * 2 + 2 + 3  # names, ours with errors, the paper's without, facts
    assert rows["NP-Former"][2].mean is None and rows["Transformer"][0].mean is None  # that one has another op
    said = (
        "scikit-learn digits (8x8), principal components",
        "Preset tiny",
        "2 seeds",
        "100 sets of 10",
        "chance is 10 %",
    )
    assert all(words in table.caption for words in said)
    real = changed(result, "informer", 4, data="CIFAR-100 (240/60 subset)")
    rows = dict(table3([result, four, real]).rows)
    assert rows["NP-Former"][0].mean is None and rows["Informer"][2].mean is not None
    assert table3([]) is None


def test_the_table_of_one_run_names_its_op(result):
    swapped = tables.run_table(changed(result, "transformer", op="linear"))
    assert "with the op linear" in swapped.caption and len(swapped.rows) == 1 and swapped.rows[0][1][1].text() == "94.3"


def test_features_name_the_weights_that_made_them(result):
    axes = result.axes | {"features": "resnet34"}
    for facts, named in (({"weights_sha256": "0123456789ab"}, " (weights 01234567)"), ({}, "")):
        content = result.content | {"axes": axes, "facts": result.content["facts"] | {"features": facts}}
        made = Result(result.folder, content)
        assert tables.described(made).endswith(f", features of a frozen ResNet-34{named}")
