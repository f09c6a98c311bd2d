"""prepare_data embed: hand-made weights and images in, a file of features out; bad input is one line."""

import hashlib
import json

import jax
import numpy as np
import pytest

from experiments.data import cifar, image_features
from experiments.data.errors import DataError
from experiments.data.resnet_weights import import_resnet
from kvq_jax.nn.resnet import imagenet_input
from tests.experiments.data.test_cifar import records
from tests.experiments.data.test_resnet_weights import small
from tests.scripts.command import run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with one training and one test image of each class, weights, and what the command wrote of them."""
    folder = tmp_path_factory.mktemp("data")
    for seed, split in enumerate(("train", "test")):
        (folder / f"{split}.bin").write_bytes(records(1, seed)[2])
    np.savez(folder / "weights.npz", **small())
    files = ("--weights", folder / "weights.npz", "--data_dir", folder, "--out", folder / "out.npz")
    told = run("prepare_data", "embed", *files, "--batch_size", 64)
    assert "features of CIFAR-100 (1/1 subset)" in told and "ResNet of (1, 2) blocks, width 3" in told
    return folder


def test_the_file_has_what_the_module_computes(made):
    data = cifar.load("archive", str(made))
    read = image_features.read(made / "out.npz", data)
    model, variables = import_resnet(small())
    for split in ("train", "test"):
        assert read.features[split].shape == (100, 6)
        some = [0, 63, 99]  # the first, and of the last batch, which is not full
        expected, _ = jax.jit(model.apply)(variables, imagenet_input(getattr(data, split)["image"][some]))
        np.testing.assert_allclose(read.features[split][some], expected, rtol=1e-3, atol=1e-4)
    assert read.provenance == {
        "network": "ResNet of (1, 2) blocks, width 3",
        "weights_sha256": hashlib.sha256((made / "weights.npz").read_bytes()).hexdigest(),
        "data": "CIFAR-100 (1/1 subset)",
        "images": {"train": 100, "test": 100},
        "input_size": 224,
    }


def test_features_of_other_images_are_refused(made, tmp_path):
    data = cifar.load("archive", str(made))
    turned = data._replace(train={name: array[::-1] for name, array in data.train.items()})
    with pytest.raises(DataError, match="not of the train images of .* in their order"):
        image_features.read(made / "out.npz", turned)
    with pytest.raises(DataError, match="not of the train images of CIFAR-100 in"):
        image_features.read(made / "out.npz", data._replace(name="CIFAR-100"))
    with pytest.raises(DataError, match="no features .*prepare_data embed"):
        image_features.read(tmp_path / "absent.npz", data)
    (tmp_path / "cut.npz").write_bytes((made / "out.npz").read_bytes()[:-100])
    with pytest.raises(DataError, match="cut.npz: cannot be read"):
        image_features.read(tmp_path / "cut.npz", data)
    with np.load(made / "out.npz") as file:
        arrays = dict(file)
    arrays["test"][3, 2] = np.nan
    np.savez(tmp_path / "nan.npz", **arrays)
    with pytest.raises(DataError, match="nan.npz: test is no finite"):
        image_features.read(tmp_path / "nan.npz", data)
    assert json.loads(str(arrays["provenance"]))["data"] == data.name


def test_what_the_command_refuses_is_one_line_and_nothing_is_written(made, tmp_path):
    np.savez(tmp_path / "bad.npz", **small(extra=np.zeros(2)))
    out = tmp_path / "new.npz"
    given = ("--data_dir", made, "--out", out)
    assert "bad.npz: the tensors are not those of a ResNet" in run(
        "prepare_data", "embed", "--weights", tmp_path / "bad.npz", *given, code=2
    )
    assert "did you mean 'embed'" in run("prepare_data", "embd", code=2)
    assert not out.exists()
