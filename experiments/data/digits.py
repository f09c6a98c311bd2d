"""The source `digits`: the real 8x8 handwritten digits that scikit-learn carries (part of UCI optdigits)."""

import numpy as np

from experiments.data.dataset import DataSet, checked

TRAIN = 1500  # of 1797


def load() -> DataSet:
    """scikit-learn's digits: 1500 training and 297 test images of 8x8 pixels, ten classes.

    A pixel v in 0..16 becomes (255 v + 8) // 16, its nearest value in 0..255: 0 stays 0 and 16 becomes 255.
    The first 1500 images are for training and the rest for testing. The cut is contiguous because the file is not
    shuffled: neighbours resemble each other more than chance, and most of it cycles through the labels 0..9, so that
    taking every k-th image would make the test set easier and skew its classes.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    image = ((bunch.images.astype(np.int32) * 255 + 8) // 16).astype(np.uint8)
    label = bunch.target
    splits = {
        "train": {"image": image[:TRAIN], "label": label[:TRAIN]},
        "test": {"image": image[TRAIN:], "label": label[TRAIN:]},
    }
    shapes = {"train": [TRAIN, 8, 8], "test": [1797 - TRAIN, 8, 8]}
    return checked("scikit-learn digits (8x8)", splits, shapes, "scikit-learn")
