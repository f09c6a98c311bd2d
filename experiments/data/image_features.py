"""Features of images by a frozen network, computed once and kept in a file that says what made them.

A file is a .npz: `train` [n, d] and `test` [n, d] float32, the labels `train_label` and `test_label`, and `provenance`,
JSON: the network, the SHA-256 of its weights file, the data set, the numbers of images, the size of the inputs, and
where a run trained the network, what it said of itself.
"""

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.dataset import SPLITS, DataSet
from experiments.data.errors import DataError
from experiments.data.resnet_weights import import_resnet, network_name
from experiments.harness import results
from experiments.harness.errors import UserError, first_line
from experiments.harness.experiment import Variables
from experiments.harness.run_directory import moved_into
from experiments.harness.tensor_files import read_tensors
from kvq_jax import saved
from kvq_jax.nn.resnet import ResNet, imagenet_input
from kvq_jax.nn.vgg import VGG

ENCODER = "set_transformer/encoder"  # the config whose runs train encoders


@dataclasses.dataclass(frozen=True)
class ImageFeatures:
    """Features {'train' | 'test': [n, d]} of a data set, in its order, and what made them."""

    features: dict[str, np.ndarray]
    provenance: dict[str, Any]


class Network(NamedTuple):
    """A trained network and its variables, the size of its inputs, and what is to be said of it."""

    model: ResNet | VGG
    variables: Variables
    size: int
    provenance: dict[str, Any]


def compute(weights: Path, data: DataSet, batch_size: int, size: int = 224) -> ImageFeatures:
    """The features of the images of `data`, normalised, by the network that `weights` holds.

    `weights` is a file of a ResNet's tensors, for images resized to `size`, or the folder of a run of
    set_transformer/encoder on this data, for images as they are.

    Raises UserError for weights that cannot be read, are no such network, or were trained on other data.
    """
    network = _of_run(weights, data) if weights.is_dir() else _of_file(weights, size)
    of_split = lambda split: getattr(data, split)["image"]
    features = {
        split: embed(network.model, network.variables, of_split(split), batch_size, network.size) for split in SPLITS
    }
    images = {split: len(features[split]) for split in SPLITS}
    provenance = network.provenance | {"data": data.name, "images": images, "input_size": network.size}
    return ImageFeatures(features, provenance)


def _of_file(weights: Path, size: int) -> Network:
    try:
        model, variables = import_resnet(read_tensors(weights))
    except UserError as error:
        raise UserError(f"{weights}: {error}" if str(weights) not in str(error) else str(error)) from error
    return Network(model, variables, size, {"network": network_name(model), "weights_sha256": _digest(weights)})


def _of_run(folder: Path, data: DataSet) -> Network:
    content = results.read(folder / "result.json")
    if content["name"] != ENCODER:
        raise UserError(f"{folder} is a run of {content['name']}, not of {ENCODER}")
    if content["facts"]["data"] != data.name:
        raise UserError(f"{folder}: the encoder was trained on {content['facts']['data']}, not on {data.name}")
    seed = content["seeds"][0]
    try:
        model, variables = saved.load(folder, seed)
    except (FileNotFoundError, ValueError) as error:
        raise UserError(str(error)) from error
    (file,) = (folder / "weights" / str(seed)).glob("variables.*")
    trained = {"preset": content["axes"]["preset"], "steps": content["steps"], "seed": seed}
    trained["test_accuracy"] = content["metrics"]["trained/accuracy"]["seeds"][0]
    name = f"VGG of {list(model.convolutions)} convolutions, widths {list(model.features)}"
    provenance = {"network": name, "weights_sha256": _digest(file), "trained": trained}
    return Network(model, variables, data.train["image"].shape[1], provenance)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def embed(model: ResNet | VGG, variables: Variables, images: np.ndarray, batch_size: int, size: int) -> np.ndarray:
    """images uint8 [n, H, W, 3] -> features [n, d], `batch_size` at a time."""
    variables = jax.tree.map(jnp.asarray, variables)

    @jax.jit
    def of_batch(batch):
        return model.apply(variables, imagenet_input(batch, size))[0]

    batches = range(0, len(images), batch_size)
    return np.concatenate([jax.device_get(of_batch(images[start : start + batch_size])) for start in batches])


def write(path: Path, made: ImageFeatures, data: DataSet) -> None:
    """Writes the features of `data` in one move. Raises UserError if it cannot."""
    labels = {f"{split}_label": getattr(data, split)["label"] for split in SPLITS}
    try:
        with moved_into(path) as file:
            np.savez(file, **made.features, **labels, provenance=json.dumps(made.provenance))
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def read(path: Path, data: DataSet) -> ImageFeatures:
    """The features of `data` in the file `path`. Raises DataError where it is missing, damaged, or of other images."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        provenance = json.loads(str(arrays["provenance"]))
        features = {split: arrays[split].astype(np.float32) for split in SPLITS}
        labels = {split: arrays[f"{split}_label"] for split in SPLITS}
        made_of = provenance["data"]
    except FileNotFoundError as error:
        raise DataError(f"no features {path}; write them with python -m scripts.prepare_data embed") from error
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as image features: {first_line(error)}") from error
    for split in SPLITS:
        if made_of != data.name or not np.array_equal(labels[split], getattr(data, split)["label"]):
            raise DataError(
                f"{path} has features of {made_of}, not of the {split} images of {data.name} in their order"
            )
        own, images = features[split], len(labels[split])
        if own.ndim != 2 or len(own) != images or not np.isfinite(own).all():
            raise DataError(f"{path}: {split} is no finite [{images}, d] but {list(own.shape)}")
    return ImageFeatures(features, provenance)
