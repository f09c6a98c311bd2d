"""Images of classes from every layout of folders, on small files: what is read, its name, what is refused."""

import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from experiments.data import image_class_sources, image_classes
from experiments.data.image_class_sources import SOURCES, SPLITS
from experiments.data.image_classes import load

COLOURS = {"train": 40, "val": 120, "test": 200}  # of the images of a split, in red


def picture(path, red, green=0, size=(6, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (red, green, 0)).save(path)


@pytest.fixture
def ravi(tmp_path):
    """Two classes of three images to train, one each to validate and to test, as the lists of Ravi and Larochelle."""
    folder = tmp_path / "mini_imagenet"
    for split, classes in {"train": "ab", "val": "c", "test": "d"}.items():
        rows = ["filename,label"]
        for name in classes:
            for number in range(3):
                picture(folder / "images" / f"{name}{number}.png", COLOURS[split], 10 * number)
                rows.append(f"{name}{number}.png,{name}")
        (folder / f"{split}.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_lists_of_files(ravi):
    data = load("mini_imagenet", str(ravi), size=6)
    assert [getattr(data, split).names for split in SPLITS] == [("a", "b"), ("c",), ("d",)]
    assert data.train.image.shape == (6, 6, 6, 3) and data.train.image.dtype == np.uint8
    assert data.train.member.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (data.train.image[:, ..., 0] == 40).all() and (data.test.image[..., 0] == 200).all()
    assert data.train.image[:, 0, 0, 1].tolist() == [0, 10, 20] * 2
    assert load("mini_imagenet", str(ravi / "mini_imagenet"), size=6).name == data.name


def test_a_subset_says_so(ravi):
    assert load("mini_imagenet", str(ravi), size=6).name == "mini-ImageNet (2/1/1 classes, 3 per class)"
    picture(ravi / "mini_imagenet" / "images" / "c3.png", 0)
    with (ravi / "mini_imagenet" / "val.csv").open("a") as file:
        file.write("c3.png,c\n")
    assert load("mini_imagenet", str(ravi), size=6).name.endswith("3 to 4 per class)")


@settings(max_examples=20, deadline=None, derandomize=True)
@given(counts=st.tuples(*[st.integers(4, 20)] * 3), seed=st.integers(0, 99))
def test_the_classes_of_the_splits_never_meet(counts, seed):
    """However many there are, in whatever order the lists have them: as listed, and divided anew."""
    names = np.random.default_rng(seed).permutation([f"class_{number}" for number in range(sum(counts))])
    parts = dict(zip(SPLITS, np.split(names, np.cumsum(counts)[:-1])))
    found = {split: {name: [Path(f"{name}.png")] for name in part} for split, part in parts.items()}
    with mock.patch.object(image_class_sources, "_ravi", lambda folder: found):
        anew = image_class_sources._eighty(None)
    for splits in (found, anew):
        image_classes._check("mini_imagenet", splits, least=1)
        assert sorted(name for classes in splits.values() for name in classes) == sorted(names), (
            "each class in one split"
        )
    assert len(anew["validation"]) == len(anew["test"]) == sum(counts) // 10


def test_the_whole_is_called_by_its_name():
    own = SOURCES["mini_imagenet"]
    whole = {
        split: {f"{split}{number}": [None] * 600 for number in range(count)}
        for split, count in zip(SPLITS, own.classes)
    }
    assert image_classes._quoted(own, whole) == "mini-ImageNet"
    whole["test"].popitem()
    assert image_classes._quoted(own, whole) == "mini-ImageNet (64/16/19 classes)"


def test_a_class_with_fewer_images_is_filled_up_with_absent_ones(ravi):
    path = ravi / "mini_imagenet" / "train.csv"
    path.write_text(path.read_text().replace("b2.png,b\n", ""))
    data = load("mini_imagenet", str(ravi), size=6)
    assert data.train.member.tolist() == [[0, 1, 2], [3, 4, -1]] and len(data.train.image) == 5


def test_images_are_resized_by_averaging(tmp_path):
    for file in ("train", "val", "test"):
        picture(tmp_path / file / "class" / file / "one.png", 0, size=(8, 8))
    image = Image.new("L", (8, 8))
    image.paste(200, (0, 0, 4, 8))
    image.save(tmp_path / "train" / "class" / "train" / "one.png")
    data = load("folders", str(tmp_path), size=2)
    assert data.name == "images in folders (1/1/1 classes, 1 per class)" and data.train.names == ("class/train",)
    left, right = data.train.image[0, 0, :, 0]
    assert left > 150 and right < 50


def test_eighty_ten_ten(tmp_path):
    """Thirty classes of one image: 24 + 3 + 3 in another order than theirs, the same at every call."""
    folder = tmp_path / "mini_imagenet"
    for split, numbers in {"train": range(20), "val": range(20, 25), "test": range(25, 30)}.items():
        for number in numbers:
            picture(folder / "images" / f"{number}.png", number)
        (folder / f"{split}.csv").write_text(
            "filename,label\n" + "".join(f"{number}.png,{number}\n" for number in numbers)
        )
    data, again = (load("mini_imagenet_80", str(tmp_path), size=6) for _ in range(2))
    names = [getattr(data, split).names for split in SPLITS]
    assert [len(part) for part in names] == [24, 3, 3] and names == [getattr(again, split).names for split in SPLITS]
    assert sorted(sum(names, ())) == sorted(map(str, range(30))) and set(names[2]) != {"27", "28", "29"}
    for split in SPLITS:
        part = getattr(data, split)
        assert part.image[part.member[:, 0], 0, 0, 0].tolist() == [int(name) for name in part.names]


def test_cifar_fs(tmp_path):
    for number, file in enumerate(("train", "val", "test")):
        for image in range(2):
            picture(tmp_path / "cifar-fs" / "data" / f"kind_{number}" / f"{image}.png", COLOURS[file])
        path = tmp_path / "cifar-fs" / "splits" / "bertinetto" / f"{file}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"kind_{number}\n")
    data = load("cifar_fs", str(tmp_path), size=6)
    assert data.validation.names == ("kind_1",) and (data.validation.image[..., 0] == 120).all()


def test_omniglot_holds_out_five_alphabets(tmp_path):
    for part, alphabets in {"background": "ABCDEFG", "evaluation": "XY"}.items():
        for alphabet in alphabets:
            for character in ("character01", "character02"):
                picture(tmp_path / "omniglot" / f"images_{part}" / alphabet / character / "0001_01.png", 255)
    data = load("omniglot", str(tmp_path), size=6)
    assert data.train.names == tuple(f"{alphabet}/character0{number}" for alphabet in "AB" for number in (1, 2))
    assert [len(getattr(data, split).names) for split in SPLITS] == [4, 10, 4] and data.train.image.shape[-1] == 1


def test_digits_need_no_folder():
    data = load("digits", None, size=16)
    assert data.name == "scikit-learn's 8x8 digits (174 to 183 per class)"
    assert [getattr(data, split).names for split in SPLITS] == [tuple("0123"), tuple("456"), tuple("789")]
    assert sum(len(getattr(data, split).image) for split in SPLITS) == 1797


def folder(ravi):
    return ravi / "mini_imagenet"


def damaged(ravi):
    path = folder(ravi) / "images" / "b1.png"
    path.write_bytes(path.read_bytes()[:50])


def no_image(ravi):
    (folder(ravi) / "images" / "b1.png").write_text("not an image")


def meeting(ravi):
    with (folder(ravi) / "test.csv").open("a") as file:
        file.write("a0.png,a\n" * 3)


def listed_twice(ravi):
    with (folder(ravi) / "test.csv").open("a") as file:
        file.write("a0.png,d\n")


def rewritten(text):
    return lambda ravi: (folder(ravi) / "train.csv").write_text(text)


@pytest.mark.parametrize(
    "spoil, pieces",
    [
        (lambda ravi: (folder(ravi) / "val.csv").unlink(), ["val.csv", "cannot be read"]),
        (lambda ravi: (folder(ravi) / "images" / "a0.png").unlink(), ["no image", "a0.png"]),
        (lambda ravi: shutil.rmtree(folder(ravi)), ["train.csv", "cannot be read", "and there is no folder", "/mini_"]),
        (damaged, ["b1.png", "not an image that can be read"]),
        (no_image, ["b1.png", "not an image that can be read"]),
        (meeting, ["class a is in train and in test"]),
        (listed_twice, ["a0.png is listed twice"]),
        (rewritten("name,class\na0.png,a\n"), ["train.csv", "filename,label"]),
        (rewritten("filename,label\na0.png\n"), ["train.csv", "line 2"]),
        (rewritten("filename,label\na0.png,a\n"), ["train class a has 1 images, an episode takes 2"]),
    ],
)
def test_what_is_wrong_is_one_line(ravi, refusal, spoil, pieces):
    spoil(ravi)
    refusal(lambda: load("mini_imagenet", str(ravi), size=6, least=2), *pieces)


def test_a_class_in_two_lists_is_none_of_the_eighty(ravi, refusal):
    meeting(ravi)
    refusal(lambda: load("mini_imagenet_80", str(ravi), size=6), "mini_imagenet: class a is in two of its lists")


def test_files_that_begin_with_a_dot_make_no_class(tmp_path):
    for file in ("train", "val", "test"):
        picture(tmp_path / file / "alphabet" / file / "one.png", 0)
        (tmp_path / file / "alphabet" / ".DS_Store").write_bytes(b"")
    assert load("folders", str(tmp_path), size=6).train.names == ("alphabet/train",)


def test_folders_that_cannot_be_classes(tmp_path, refusal):
    refusal(lambda: load("folders", str(tmp_path), size=6), "no folder", tmp_path / "train")
    for file in ("train", "val"):
        picture(tmp_path / file / file / "one.png", 0)
    (tmp_path / "test").mkdir()
    refusal(lambda: load("folders", str(tmp_path), size=6), "no test classes")
    (tmp_path / "train" / "train" / "notes.txt").write_text("not an image")
    refusal(lambda: load("folders", str(tmp_path), size=6), "notes.txt", "not an image")


def test_source_and_folder_are_asked_for(refusal):
    refusal(lambda: load("mini_image_net", "/", size=6), "mini_imagenet")
    refusal(lambda: load("mini_imagenet", None, size=6), "--data_dir")


def test_real_mini_imagenet(data_dir):
    if not (data_dir / "mini_imagenet").is_dir():
        pytest.skip("no mini_imagenet folder among the real data")
    data = load("mini_imagenet", str(data_dir), size=28, least=20)
    assert data.name.startswith("mini-ImageNet") and [len(getattr(data, split).names) for split in SPLITS] == [
        64,
        16,
        20,
    ]
    assert data.train.image.mean() / 255 == pytest.approx(0.45, abs=0.03)
