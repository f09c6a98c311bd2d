"""The tfds source: on a small data set prepared here without TensorFlow, on tfds's mock, and where there is none."""

import io
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from experiments.data import manifest, prepared
from experiments.data.sources import load

SIZES = {"train": 12, "test": 5}


def small(sizes):
    """MNIST's manifest, but for its number of images."""
    whole = manifest.read("mnist", "tfds")
    return manifest.Manifest(**{**vars(whole), "image_shapes": {split: [n, 28, 28] for split, n in sizes.items()}})


def examples(split):
    """image uint8 [n, 28, 28], label [n]: the label is the brightness of the first pixel."""
    image = np.random.default_rng(len(split)).integers(0, 256, (SIZES[split], 28, 28), dtype=np.uint8)
    label = np.arange(SIZES[split]) % 10
    image[:, 0, 0] = label
    return image, label


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Where tfds's own MNIST builder has prepared a few images, given to it encoded (so without TensorFlow)."""
    import tensorflow_datasets as tfds

    class Small(tfds.builder_cls("mnist"), skip_registration=True):
        name = "mnist"

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in SIZES}

        def _generate_examples(self, split):
            for i, (image, label) in enumerate(zip(*examples(split))):
                file = io.BytesIO()
                Image.fromarray(image).save(file, "png")
                file.seek(0)
                yield i, {"image": file, "label": int(label)}

    folder = tmp_path_factory.mktemp("tfds")
    Small(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


@pytest.fixture
def isolated(monkeypatch):
    """Any attempt to reach the network or to import TensorFlow is a failure."""

    def refuse(*args, **kwargs):
        raise AssertionError("the network or TensorFlow was tried")

    class NoTensorFlow:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "tensorflow":
                refuse()

    monkeypatch.setattr(sys, "meta_path", [NoTensorFlow, *sys.meta_path])
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_reads_what_was_prepared(root, isolated):
    data = prepared.load(small(SIZES), str(root))
    assert data.name == "MNIST"
    for split in SIZES:
        fields, (image, label) = getattr(data, split), examples(split)
        assert fields["image"].dtype == np.uint8 and fields["label"].dtype == np.int32
        np.testing.assert_array_equal(fields["label"], fields["image"][:, 0, 0])
        assert {x.tobytes() for x in fields["image"]} == {x.tobytes() for x in image}
        np.testing.assert_array_equal(np.sort(fields["label"]), np.sort(label))


def test_tfds_own_folder_is_used_without_data_dir(root, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    assert len(prepared.load(small(SIZES), None).test["image"]) == SIZES["test"]


def test_the_newest_prepared_version_is_read(root, tmp_path):
    shutil.copytree(root / "mnist" / "3.0.1", tmp_path / "mnist" / "3.0.1")
    for other in ("3.0.0", "notes"):
        (tmp_path / "mnist" / other).mkdir()
        (tmp_path / "mnist" / other / "dataset_info.json").write_text("not read")
    assert len(prepared.load(small(SIZES), str(tmp_path)).train["image"]) == SIZES["train"]


@pytest.mark.parametrize("version", ["3.0.0", "3.0.11"])
def test_another_version_than_the_installed_tfds_knows(root, tmp_path, isolated, version):
    folder = tmp_path / "mnist" / version
    shutil.copytree(root / "mnist" / "3.0.1", folder)
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"version": "3.0.1"', f'"version": "{version}"'))
    assert len(prepared.load(small(SIZES), str(tmp_path)).train["image"]) == SIZES["train"]


def test_mocked_data(root, isolated):
    import tensorflow_datasets as tfds

    with tfds.testing.mock_data(num_examples=3, data_dir=str(root)):
        data = prepared.load(small({"train": 3, "test": 3}), str(root))
    assert data.train["image"].shape == data.test["image"].shape == (3, 28, 28)


def test_a_limited_preparation_is_not_quoted_as_the_data_set(root, refusal):
    refusal(lambda: load("mnist", "tfds", str(root)), root, "[12, 28, 28]", "MNIST", "[60000, 28, 28]")


def test_unprepared_fails_fast_without_the_network(tmp_path, isolated, refusal):
    started = time.perf_counter()
    refusal(
        lambda: load("mnist", "tfds", str(tmp_path)),
        "MNIST",
        tmp_path / "mnist",
        "download_and_prepare",
        "file_format='array_record'",
        f"data_dir={str(tmp_path)!r}",
        "source 'archive'",
    )
    assert time.perf_counter() - started < 5
    assert not any(tmp_path.iterdir())


def test_unprepared_says_one_line_in_a_fresh_process(tmp_path):
    program = (
        "import sys\nfrom experiments.data.sources import load\nfrom experiments.data.errors import DataError\n"
        f"try: load('mnist', 'tfds', {str(tmp_path)!r})\nexcept DataError as error: print(error)"
    )
    checkout = pathlib.Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 1 and done.stderr == ""


def test_data_prepared_for_tensorflow_is_refused(root, tmp_path, refusal):
    folder = tmp_path / "mnist" / "3.0.1"
    shutil.copytree(root / "mnist" / "3.0.1", folder)
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    for shard in folder.glob("*.array_record-*"):
        shard.rename(str(shard).replace("array_record", "tfrecord"))
    refusal(lambda: prepared.load(small(SIZES), str(tmp_path)), folder, "only be read with TensorFlow", "array_record")


def test_damaged_preparation_is_refused(root, tmp_path, refusal):
    folder = tmp_path / "mnist" / "3.0.1"
    shutil.copytree(root / "mnist" / "3.0.1", folder)
    (shard,) = folder.glob("*train*")
    shard.write_bytes(shard.read_bytes()[:100])
    refusal(lambda: prepared.load(small(SIZES), str(tmp_path)), folder, "cannot read")
    shard.unlink()
    refusal(lambda: prepared.load(small(SIZES), str(tmp_path)), folder, "cannot read")
    (folder / "dataset_info.json").write_text("{")
    refusal(lambda: prepared.load(small(SIZES), str(tmp_path)), folder, "cannot read")
