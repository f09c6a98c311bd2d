"""CIFAR-100's binary files: read back as written here, quoted by what is in them, refused where damaged."""

import gzip

import numpy as np
import pytest

from experiments.data import cifar

COARSE = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 5))  # of each fine label


def records(per_class, seed=0, coarse=COARSE):
    """(images [n, 32, 32, 3], labels, bytes) of a file with so many images of each class, shuffled."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.repeat(np.arange(100, dtype=np.uint8), per_class))
    image = rng.integers(0, 256, (len(label), 32, 32, 3), np.uint8)
    pixels = np.stack([image[..., channel].reshape(len(label), -1) for channel in range(3)], 1).reshape(len(label), -1)
    return image, label, np.column_stack([coarse[label].astype(np.uint8), label, pixels]).astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path):
    """DATA/cifar-100-binary with 2 training and 1 test image of each class."""
    place = tmp_path / "cifar-100-binary"
    place.mkdir()
    for seed, (split, per_class) in enumerate((("train", 2), ("test", 1))):
        (place / f"{split}.bin").write_bytes(records(per_class, seed)[2])
    return place


def test_what_was_written_is_read(folder):
    for data_dir in (folder.parent, folder):
        data = cifar.load("archive", str(data_dir))
        assert data.name == "CIFAR-100 (2/1 subset)"
        for seed, (fields, per_class) in enumerate(((data.train, 2), (data.test, 1))):
            image, label, _ = records(per_class, seed)
            np.testing.assert_array_equal(fields["image"], image)
            np.testing.assert_array_equal(fields["label"], label)
            assert fields["image"].dtype == np.uint8 and fields["label"].dtype == np.int32


def test_files_may_be_compressed(folder):
    path = folder / "test.bin"
    path.with_name("test.bin.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert len(cifar.load("archive", str(folder)).test["image"]) == 100


def test_only_the_numbers_of_the_original_are_quoted_as_the_original():
    def quoted(train, test):
        return cifar.quote({"train": np.repeat(np.arange(100), train), "test": np.repeat(np.arange(100), test)})

    assert quoted(500, 100) == "CIFAR-100"
    assert quoted(240, 60) == "CIFAR-100 (240/60 subset)"
    assert quoted(100, 500) == "CIFAR-100 (100/500 subset)"
    assert quoted(np.arange(100) + 1, 1) == "CIFAR-100 (5050/100 images in all, subset)"


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda raw: raw[:-1], "614799 bytes are no whole number of CIFAR-100 records"),
        (lambda raw: b"", "0 bytes are no whole number"),
        (lambda raw: bytes([20]) + raw[1:], "coarse labels go to 20"),
        (lambda raw: raw[:1] + bytes([100]) + raw[2:], "fine labels to 100"),
        (lambda raw: bytes([(raw[0] + 1) % 20]) + raw[1:], "coarse and fine labels do not fit"),
        (lambda raw: raw[: cifar.RECORD], "the train images are of 1 of 100 classes"),
        (lambda raw: gzip.compress(raw)[:-20], "truncated gzip"),
    ],
    ids=["cut", "empty", "coarse", "fine", "hierarchy", "classes", "gzip"],
)
def test_damaged_files(folder, refusal, damage, message):
    path = folder / "train.bin"
    path.write_bytes(damage(path.read_bytes()))
    refusal(lambda: cifar.load("archive", str(folder)), folder, message)


def test_missing_data(folder, refusal, tmp_path):
    (folder / "test.bin").unlink()
    refusal(
        lambda: cifar.load("archive", str(tmp_path)),
        "no file test.bin",
        folder,
        "download",
        "source 'tfds'",
        "'cifar100'",
    )
    refusal(lambda: cifar.load("archive", None), "CIFAR-100", "--data_dir")
    refusal(lambda: cifar.load("archive", str(tmp_path / "absent")), "no folder")
    refusal(lambda: cifar.load("tfds", str(tmp_path)), "no prepared TFDS data of CIFAR-100", "download_and_prepare")
    refusal(lambda: cifar.load("archiv", None), "source of CIFAR-100 'archiv'", "mean 'archive'")


def test_real_images(data_dir, refusal):
    if not (data_dir / "cifar-100-binary").is_dir():
        pytest.skip("no cifar-100-binary folder among the real data")
    data = cifar.load("archive", str(data_dir))
    assert data.name.startswith("CIFAR-100")
    mean = data.train["image"].mean((0, 1, 2)) / 255
    np.testing.assert_allclose(mean, [0.507, 0.487, 0.441], atol=0.01)  # the constants that everyone uses
