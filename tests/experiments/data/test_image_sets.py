"""Images to complete behind one function: shapes, parts, classes, sizes, and what is refused."""

import numpy as np
import pytest
from PIL import Image

from experiments.data import image_sets, sources
from tests.experiments.data.image_archives import PARTITIONS, idx_bytes, resized_faces, upright


def load(name, source="archive", data_dir=None, size=8, crop=False, validation_images=2, seen=(0, 10)):
    return image_sets.load(
        name, source, data_dir and str(data_dir), size=size, crop=crop, validation_images=validation_images, seen=seen
    )


def parts(data):
    return [data.train, data.validation, *data.test.values()]


def test_digits_need_no_folder():
    data, original = load("digits", "digits", validation_images=100, seen=None), sources.load("digits", "digits", None)
    assert data.name == original.name and list(data.test) == ["test"]
    assert [part.shape for part in parts(data)] == [(n, 8, 8, 1) for n in (1400, 100, 297)]
    np.testing.assert_array_equal(np.concatenate(parts(data)[:2])[..., 0], original.train["image"])
    np.testing.assert_array_equal(data.test["test"][..., 0], original.test["image"])


def test_faces_train_on_two_partitions(faces):
    data = load("celeba", data_dir=faces)
    assert data.name == "CelebA (9-image subset)" and list(data.test) == ["test"]
    assert [len(part) for part in parts(data)] == [PARTITIONS[0] + PARTITIONS[1] - 2, 2, PARTITIONS[2]]
    np.testing.assert_array_equal(np.concatenate(parts(data)), resized_faces(8))
    assert not np.shares_memory(data.train, data.validation) and data.train.base is data.validation.base
    assert (load("celeba", data_dir=faces, crop=True).train != data.train).any()


@pytest.mark.parametrize("seen", [(0, 10), (3, 4), (40, 47)])
def test_letters_are_seen_or_not(letters, seen):
    data = load("emnist", data_dir=letters, size=28, validation_images=1, seen=seen)
    assert data.name.startswith("EMNIST (47 classes") and list(data.test) == ["seen", "unseen"]
    for split, images in {"train": np.concatenate([data.train, data.validation]), "test": data.test["seen"]}.items():
        image, label = upright(split)
        known = image[(seen[0] <= label) & (label < seen[1])]
        assert images.shape == (len(known), 28, 28, 1)
        assert sorted(one.tobytes() for one in images) == sorted(one.tobytes() for one in known)
    image, label = upright("test")
    np.testing.assert_array_equal(data.test["unseen"][..., 0], image[(label < seen[0]) | (label >= seen[1])])


def test_held_out_letters_are_a_sample_of_files_sorted_by_class(letters):
    image, label = upright("train")
    order = np.argsort(label, kind="stable")
    for part, array in {"images-idx3": image.transpose(0, 2, 1), "labels-idx1": label}.items():
        (letters / f"emnist-balanced-train-{part}-ubyte.gz").write_bytes(idx_bytes(array[order]))
    held_out, again = (load("emnist", data_dir=letters, size=28, validation_images=10).validation for _ in range(2))
    np.testing.assert_array_equal(held_out, again)
    classes = set(held_out[:, 25, 4, 0] - 200)
    assert classes <= set(range(10)) and len(classes) > 5, "the last ten are 5, 5, 6, 6 and so on"


@pytest.mark.parametrize("size", [8, 32])
def test_letters_of_another_size(letters, size):
    data = load("emnist", data_dir=letters, size=size)
    assert all(part.shape[1:] == (size, size, 1) and part.dtype == np.uint8 for part in parts(data))
    seen = [np.asarray(Image.fromarray(image).resize((size, size))) for image in upright("test")[0][:10]]
    np.testing.assert_array_equal(data.test["seen"][..., 0], seen)


@pytest.mark.parametrize(
    "name, sizes", [("digits", (0, 7, 9, 16)), ("mnist", (0, -1, 33)), ("emnist", (0, 64)), ("celeba", (0, 179, 218))]
)
def test_no_resolution_is_made_up(refusal, name, sizes):
    for size in sizes:
        refusal(
            lambda size=size: load(name, size=size), name, f"at {size} pixels", "a resolution that the data cannot give"
        )
    refusal(lambda: load("digits", size=9), "its images give 8")
    refusal(lambda: load("celeba", size=179), "its images give 1 to 178")


def test_what_cannot_be_asked_for(letters, refusal):
    refusal(lambda: load("celebA"), "image set 'celebA'", "mean 'celeba'")
    refusal(lambda: load("digits", "archive"), "digits", "archive")
    refusal(lambda: load("mnist", "digits"), "'mnist'", "digits")
    refusal(lambda: load("mnist", size=28), "MNIST", "--data_dir")
    refusal(lambda: load("emnist", "digits"), "source of EMNIST", "'digits'")
    refusal(lambda: load("celeba", "digits"), "source of CelebA", "'digits'")
    for seen in ((0, 0), (5, 4), (-1, 10), (0, 48)):
        refusal(lambda seen=seen: load("emnist", data_dir=letters, seen=seen), f"seen={seen}", "0 to 46")
    refusal(lambda: load("emnist", data_dir=letters, seen=(0, 47)), "no image", "'unseen'")
    for count in (0, -1, 20, 21):
        refusal(
            lambda count=count: load("emnist", data_dir=letters, validation_images=count),
            f"validation_images={count}",
            "20 images to train on",
        )


def test_real_mnist(data_dir):
    if not (data_dir / "mnist").is_dir():
        pytest.skip("no mnist folder among the real data")
    data = load("mnist", data_dir=data_dir, size=28, validation_images=5000)
    assert data.name == "MNIST" and [len(part) for part in parts(data)] == [55_000, 5000, 10_000]
