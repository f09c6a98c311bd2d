"""What every source returns, and the check that it is what the manifest promises."""

from typing import NamedTuple

import numpy as np

from experiments.data.errors import DataError

SPLITS = ("train", "test")


class DataSet(NamedTuple):
    """A labelled image set in host memory.

    name   how to quote it in a table or caption, e.g. 'MNIST'
    train  {'image': uint8 [n, H, W] or [n, H, W, channels], values 0..255; 'label': int32 [n], 0-based}
    test   the same, with no example in common with train
    """

    name: str
    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]


def checked(name: str, splits: dict, image_shapes: dict, where) -> DataSet:
    """A DataSet from `splits` {'train' | 'test': {'image': array, 'label': array [n]}}.

    A last axis of a single channel is dropped; labels become int32.
    Raises DataError, naming `where` the data came from, unless the images are uint8 of the shape that
    `image_shapes` {'train' | 'test': [n, H, W, ...]} promises and there is one label for each.
    """
    return DataSet(name, **{split: _split(name, split, splits[split], image_shapes[split], where) for split in SPLITS})


def _split(name, split, fields, image_shape, where):
    image, label = np.asarray(fields["image"]), np.asarray(fields["label"])
    if image.ndim == 4 and image.shape[-1] == 1:
        image = image[..., 0]
    if image.dtype != np.uint8 or image.shape != tuple(image_shape):
        raise DataError(
            f"{where}: {split} images are {image.dtype} {list(image.shape)}, but those of {name} are "
            f"uint8 {list(image_shape)}"
        )
    if label.shape != image.shape[:1]:
        raise DataError(f"{where}: {split} has labels of shape {list(label.shape)} for {len(image)} images")
    return {"image": image, "label": label.astype(np.int32)}
