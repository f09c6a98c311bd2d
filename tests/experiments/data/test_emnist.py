"""EMNIST from small files: upright, of any number of images, quoted by what was counted, refused where damaged."""

import io
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from experiments.data import emnist
from tests.experiments.data.image_archives import LETTERS, idx_bytes, upright


def test_letters_stand_upright(letters):
    for data_dir in (letters.parent, letters):
        data = emnist.load("archive", str(data_dir))
        assert data.name == "EMNIST (47 classes, 94 + 47 images, re-split)"
        for split in LETTERS:
            image, label = upright(split)
            fields = getattr(data, split)
            np.testing.assert_array_equal(fields["image"], image)
            np.testing.assert_array_equal(fields["label"], label)
            assert fields["image"].dtype == np.uint8 and fields["image"].flags.c_contiguous


def test_only_the_numbers_of_the_original_are_quoted_as_the_original():
    def quoted(train, test):
        return emnist.quote({"train": np.repeat(np.arange(47), train), "test": np.repeat(np.arange(47), test)})

    assert quoted(2400, 400) == "EMNIST (balanced)"
    assert quoted(2400, 399) == "EMNIST (47 classes, 112,800 + 18,753 images, re-split)"
    moved = np.full(47, 2400) + np.eye(47, dtype=int)[3] - np.eye(47, dtype=int)[4]
    assert quoted(moved, 400) == "EMNIST (47 classes, 112,800 + 18,800 images, re-split)"
    few = emnist.quote({"train": np.array([0, 1]), "test": np.array([1, 46])})
    assert few == "EMNIST (3 classes, 2 + 2 images, re-split)"


@pytest.mark.parametrize(
    "part, array, message",
    [
        ("labels-idx1", np.full(94, 47, np.uint8), "labels are uint8, up to 47"),
        ("labels-idx1", np.zeros(94, ">i4"), "labels are int32, up to 0"),
        ("labels-idx1", np.zeros(93, np.uint8), "labels of shape [93] for 94 images"),
        ("labels-idx1", np.zeros((94, 1), np.uint8), "labels of shape [94, 1] for 94 images"),
        ("images-idx3", np.zeros((94, 28, 27), np.uint8), "uint8 [94, 28, 27]"),
        ("images-idx3", np.zeros(94, np.uint8), "uint8 [94]"),
    ],
)
def test_files_of_something_else(letters, refusal, part, array, message):
    path = letters / f"emnist-balanced-train-{part}-ubyte.gz"
    path.write_bytes(idx_bytes(array, {1: 0x08, 4: 0x0C}[array.itemsize]))
    refusal(lambda: emnist.load("archive", str(letters)), letters, message)


def test_missing_and_damaged_data(letters, refusal, tmp_path):
    path = letters / "emnist-balanced-test-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    refusal(lambda: emnist.load("archive", str(letters)), path, "truncated gzip")
    path.unlink()
    refusal(lambda: emnist.load("archive", str(tmp_path)), path.stem, letters, "download", "'emnist/balanced'")
    refusal(lambda: emnist.load("archive", None), "EMNIST", "--data_dir")
    refusal(lambda: emnist.load("tfds", str(tmp_path)), "no prepared TFDS data of EMNIST", "download_and_prepare")
    refusal(lambda: emnist.load("archives", None), "source of EMNIST (balanced) 'archives'", "mean 'archive'")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Where tfds's own builder has prepared the images, given to it encoded (so without TensorFlow)."""
    import tensorflow_datasets as tfds

    def generate(self, split):
        for number, (image, label) in enumerate(zip(*upright(split))):
            file = io.BytesIO()
            Image.fromarray(image.T).save(file, "png")
            file.seek(0)
            yield number, {"image": file, "label": int(label)}

    root = tmp_path_factory.mktemp("tfds")
    splits = lambda self, _: {split: self._generate_examples(split) for split in LETTERS}
    with mock.patch.multiple(tfds.builder_cls("emnist"), _split_generators=splits, _generate_examples=generate):
        tfds.builder("emnist/balanced", data_dir=root, file_format="array_record").download_and_prepare()
    return root


def test_prepared_letters_stand_upright(prepared, monkeypatch, refusal):
    refusal(lambda: emnist.load("tfds", str(prepared)), "[94, 28, 28]", "EMNIST (balanced)", "[112800, 28, 28]")
    shapes = {split: [count, 28, 28] for split, count in LETTERS.items()}
    monkeypatch.setitem(vars(emnist.EMNIST), "image_shapes", shapes)
    data = emnist.load("tfds", str(prepared))
    for split in LETTERS:
        fields, (image, label) = getattr(data, split), upright(split)
        order = np.argsort(fields["label"], kind="stable")
        np.testing.assert_array_equal(fields["image"][order], image[np.argsort(label, kind="stable")])


def test_real_letters(data_dir):
    if not (data_dir / "emnist").is_dir():
        pytest.skip("no emnist folder among the real data")
    data = emnist.load("archive", str(data_dir))
    assert data.name.startswith("EMNIST (") and set(data.train["label"]) == set(range(47))
    mean = data.test["image"][data.test["label"] == 29].mean(0)  # T, whose bar is above
    assert mean[:14].mean() - mean[14:].mean() > abs(mean[:, :14].mean() - mean[:, 14:].mean())
