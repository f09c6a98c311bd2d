"""Names and sources, and the digits bundled with scikit-learn."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from experiments.data import digits
from experiments.data.sources import SOURCES, load


@pytest.fixture(scope="module")
def data():
    return load("digits", "digits", None)


def test_digits_shapes_and_types(data):
    assert data.name == "scikit-learn digits (8x8)"
    for fields, n in ((data.train, 1500), (data.test, 297)):
        assert fields["image"].shape == (n, 8, 8) and fields["image"].dtype == np.uint8
        assert fields["label"].shape == (n,) and fields["label"].dtype == np.int32
        assert set(fields["label"]) == set(range(10))
        assert fields["image"].min() == 0 and fields["image"].max() == 255


def test_digits_scaling_is_the_nearest_level(data):
    original = load_digits().images
    image = np.concatenate([data.train["image"], data.test["image"]])
    assert np.abs(image - original * 255 / 16).max() <= 0.5
    np.testing.assert_array_equal(np.rint(image / 255 * 16), original)  # nothing is lost
    assert len(np.unique(image)) == 17


def test_digits_split_is_disjoint_and_complete(data):
    train, test = ({image.tobytes() for image in fields["image"]} for fields in (data.train, data.test))
    assert len(train) == 1500 and len(test) == 297 and not train & test


def test_digits_are_the_same_every_time(data):
    again = digits.load()
    for split in ("train", "test"):
        for field, array in getattr(data, split).items():
            np.testing.assert_array_equal(array, getattr(again, split)[field])


def test_unknown_source(refusal):
    refusal(lambda: load("mnist", "archives", None), "data source 'archives'", "mean 'archive'", *SOURCES)
    assert "did you mean" not in refusal(lambda: load("mnist", "??", None), "known: archive, digits, tfds")


@pytest.mark.parametrize("source", ["archive", "tfds"])
def test_unknown_name(refusal, source):
    refusal(lambda: load("minst", source, None), f"data set of source {source!r} 'minst'", "mean 'mnist'", "known:")
    refusal(lambda: load("digits", source, None), "data set", source, "'digits'")
    refusal(lambda: load("../mnist", source, None), "'../mnist'")


def test_no_source_stands_in_for_another(refusal, tmp_path):
    refusal(lambda: load("mnist", "digits", None), "source 'digits'", "'mnist'", "known: digits")
    refusal(lambda: load("mnist", "archive", None), "MNIST", "--data_dir")
    refusal(lambda: load("mnist", "archive", str(tmp_path)), "train-images-idx3-ubyte", "MNIST", tmp_path / "mnist")
