"""The archive source on a tiny data set that each test writes for itself."""

import dataclasses
import functools
import gzip
import pathlib

import numpy as np
import pytest

from experiments.data import archive, manifest
from experiments.data.dataset import checked

TRAIN_IMAGES = "train-images-idx3-ubyte"


def dots(name):
    return name.replace("-idx", ".idx")


def assert_holds(data, tiny):
    assert data.name == "Tiny"
    for split in ("train", "test"):
        fields = getattr(data, split)
        assert fields.keys() == {"image", "label"}
        assert fields["image"].dtype == np.uint8 and fields["label"].dtype == np.int32
        for field, array in fields.items():
            np.testing.assert_array_equal(array, tiny.arrays[split][field])


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("rename", [str, dots], ids=["dash", "dot"])
@pytest.mark.parametrize("folder", ["tiny", "."])
def test_reads_every_accepted_layout(tmp_path, tiny, compress, rename, folder):
    tiny.write(tmp_path / folder, rename, compress)
    assert_holds(archive.load(tiny.manifest, str(tmp_path)), tiny)


def test_a_single_channel_axis_is_dropped(tiny):
    splits = {
        split: {"image": fields["image"][..., None], "label": fields["label"]} for split, fields in tiny.arrays.items()
    }
    assert_holds(checked("Tiny", splits, tiny.manifest.image_shapes, "here"), tiny)


def test_the_first_folder_wins(tmp_path, tiny):
    tiny.write(tmp_path / "tiny")
    (tmp_path / TRAIN_IMAGES).write_bytes(b"a stray file")
    assert_holds(archive.load(tiny.manifest, str(tmp_path)), tiny)


def test_shapes_and_counts_must_agree(tmp_path, tiny, refusal):
    tiny.write(tmp_path)
    shapes = dataclasses.replace(tiny.manifest, image_shapes={"train": [6, 5, 3], "test": [4, 3, 5]})
    refusal(lambda: archive.load(shapes, str(tmp_path)), tmp_path, "test images", "[4, 5, 3]", "uint8 [4, 3, 5]")
    files = tiny.manifest.files
    train = {"image": files["train"]["image"], "label": files["test"]["label"]}
    swapped = dataclasses.replace(tiny.manifest, files={**files, "train": train})
    refusal(lambda: archive.load(swapped, str(tmp_path)), tmp_path, "train", "labels of shape [4]", "6 images")


def test_no_data_dir(tiny, refusal):
    refusal(lambda: archive.load(tiny.manifest, None), "archive", "Tiny", "--data_dir")


def test_data_dir_that_is_no_folder(tmp_path, tiny, refusal):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "absent", tmp_path / "file"):
        refusal(functools.partial(archive.load, tiny.manifest, str(path)), "no folder", path, "--data_dir")


def test_missing_file_says_which_where_and_how(tmp_path, tiny, refusal):
    folder = tiny.write(tmp_path / "tiny")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    refusal(
        lambda: archive.load(tiny.manifest, str(tmp_path)),
        "t10k-labels-idx1-ubyte or t10k-labels.idx1-ubyte",
        ".gz",
        f"looked in {folder}, {tmp_path};",
        "download",
        f"example.org/tiny into {folder}",
        "source 'tfds'",
        "download_and_prepare",
        f"data_dir={str(tmp_path)!r}",
    )


def test_altered_byte(tmp_path, tiny, refusal):
    path = tiny.write(tmp_path) / TRAIN_IMAGES
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    expected = tiny.manifest.files["train"]["image"]["sha256"]
    line = refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), path, "checksum mismatch", expected, "got ")
    assert len(line.split("got ")[1]) == 64
    path.unlink()
    zipped = path.with_name(path.name + ".gz")
    zipped.write_bytes(gzip.compress(raw))  # sound gzip of altered bytes
    refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), zipped, "checksum mismatch", expected)


def test_another_data_set_under_the_same_name(tmp_path, tiny, refusal):
    path = tiny.write(tmp_path) / TRAIN_IMAGES
    path.write_bytes((tmp_path / "t10k-images-idx3-ubyte").read_bytes())
    refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), path, "wrong size: expected 106 bytes", "got 76")


@pytest.mark.parametrize(
    "damage, piece",
    [
        (lambda raw: raw[:50], "wrong size"),
        (lambda raw: b"", "not an IDX file"),
        (lambda raw: b"<html></html>", "not an IDX file"),
        (lambda raw: gzip.compress(raw)[:-20], "truncated gzip file"),
    ],
    ids=["truncated", "empty", "web page", "truncated gzip"],
)
def test_damaged_file_is_refused_though_a_good_copy_lies_beside_it(tmp_path, tiny, refusal, damage, piece):
    tiny.write(tmp_path, compress=True)
    path = tmp_path / TRAIN_IMAGES
    path.write_bytes(damage(tiny.contents[TRAIN_IMAGES]))
    refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), path, piece)


def test_unreadable_file(tmp_path, tiny, refusal, monkeypatch):
    path = tiny.write(tmp_path) / TRAIN_IMAGES
    path.unlink()
    path.mkdir()
    refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), path, "cannot be read", "Is a directory")
    path.rmdir()
    path.symlink_to("nowhere")
    refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), path, "cannot be read", "No such file")

    def denied(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(pathlib.Path, "read_bytes", denied)
    refusal(lambda: archive.load(tiny.manifest, str(tmp_path)), path, "cannot be read", "Permission denied")


@pytest.mark.parametrize("name", manifest.names())
def test_shipped_manifests_are_whole(name):
    entry = manifest.read(name, "archive")
    assert entry.folders[0] == name and entry.folders[-1] == "."
    assert entry.tfds.keys() == {"builder", "fields", "splits"}
    for fields in entry.files.values():
        for file in fields.values():
            assert file.keys() == {"names", "size", "sha256"} and len(file["sha256"]) == 64


def test_real_mnist(data_dir):
    from experiments.data.sources import load

    if not (data_dir / "mnist").is_dir():
        pytest.skip("no mnist folder among the real data")
    data = load("mnist", "archive", str(data_dir))
    assert data.name == "MNIST"
    assert data.train["image"].shape == (60000, 28, 28) and data.test["image"].shape == (10000, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.train["label"]).tolist() == counts
    assert np.bincount(data.test["label"]).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.train["label"][:5].tolist() == [5, 0, 4, 1, 9]
    assert data.train["image"].mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the constant that everyone uses
