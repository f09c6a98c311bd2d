"""Images with their classes: drawn uniformly, moved and mirrored in training alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.tasks.labelled_images import Classified, LabelledImages

# Every pixel of every image has another value, and none is black.
IMAGE = np.arange(1, 1 + 3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
LABEL = np.array([4, 0, 7], np.int32)


def drawn(task, training, number=600):
    data = LabelledImages(jnp.asarray(IMAGE), jnp.asarray(LABEL), training)
    made = jax.jit(jax.vmap(task.sample, (0, None)))(jax.random.split(jax.random.key(0), number), data)
    assert made.training is training
    return np.asarray(made.image), np.asarray(made.label)


def test_images_that_are_not_trained_on_are_as_they_are():
    image, label = drawn(Classified(padding=2, mirror=True), training=False)
    place = [list(LABEL).index(own) for own in label]
    np.testing.assert_array_equal(image, IMAGE[place])
    assert np.bincount(place) / 600 == pytest.approx(np.full(3, 1 / 3), abs=0.08)


def test_images_to_train_on_are_all_that_lie_within_the_padding_mirrored_or_not():
    image, label = drawn(Classified(padding=1, mirror=True), training=True)
    wide = np.pad(IMAGE, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = {}
    for place, own in enumerate(LABEL):
        for row, column in np.ndindex(3, 3):
            cut = wide[place, row : row + 4, column : column + 5]
            expected |= {(own, way.tobytes()): 0 for way in (cut, cut[:, ::-1])}
    assert len(expected) == 3 * 9 * 2
    for own, picture in zip(label, image):
        expected[own, picture.tobytes()] += 1  # a KeyError for any other
    assert min(expected.values()) >= 1 and max(expected.values()) < 30


def test_without_padding_and_mirror_nothing_changes():
    image, label = drawn(Classified(padding=0, mirror=False), training=True, number=30)
    np.testing.assert_array_equal(image, IMAGE[[list(LABEL).index(own) for own in label]])
