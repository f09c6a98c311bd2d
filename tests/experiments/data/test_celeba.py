"""CelebA from a folder, an archive and tfds, of a few small files: what is read, kept, decoded anew, and refused."""

import io
import os
import shutil
import zipfile
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from experiments.data import celeba, image_files
from tests.experiments.data.image_archives import FACES, PARTITION_OF, PARTITIONS, jpeg, resized_faces


def load(data_dir, size=8, crop=False):
    return celeba.load("archive", str(data_dir), size, crop)


@pytest.mark.parametrize("size", [1, 8, 178])
def test_whole_images_by_partition_as_published(faces, size):
    for data_dir in (faces.parent, faces):
        data = load(data_dir, size)
        assert data.name == "CelebA (9-image subset)" and data.partitions == PARTITIONS
        assert data.image.dtype == np.uint8
        np.testing.assert_array_equal(data.image, resized_faces(size))


def test_the_central_square(faces):
    data, whole = load(faces, 178, crop=True), Image.open(io.BytesIO(FACES["000001.jpg"]))
    np.testing.assert_array_equal(data.image[0], np.asarray(whole)[20:198])
    small = load(faces, 8, crop=True).image[0]
    np.testing.assert_array_equal(small, np.asarray(whole.crop((0, 20, 178, 198)).resize((8, 8))))
    assert (small != load(faces, 8).image[0]).any(), "each rule has a file of its own"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_is_read_without_unpacking(faces, method):
    with zipfile.ZipFile(faces / "img_align_celeba.zip", "w", method) as packed:
        packed.mkdir("img_align_celeba")
        packed.writestr("__MACOSX/img_align_celeba/._000001.jpg", b"no image")
        for name, raw in reversed(FACES.items()):
            packed.writestr(f"img_align_celeba/{name}", raw)
    shutil.rmtree(faces / "img_align_celeba")
    np.testing.assert_array_equal(load(faces).image, resized_faces(8))
    assert sorted(path.name for path in faces.iterdir()) == [
        "celeba_8.npz", "img_align_celeba.zip", "list_eval_partition.txt",
    ]  # fmt: skip


def test_only_the_partitions_of_the_original_are_quoted_as_the_original():
    assert celeba.quote((162_770, 19_867, 19_962)) == "CelebA"
    assert celeba.quote((2250, 300, 450)) == "CelebA (3,000-image subset)"
    assert celeba.quote((162_770, 19_867, 19_961)) == "CelebA (202,598-image subset)"


def test_images_that_are_not_listed_are_left_out(faces):
    path = faces / "list_eval_partition.txt"
    path.write_text("000001.jpg 0\n000005.jpg 1\n000009.jpg 2\n")
    data = load(faces)
    assert data.partitions == (1, 1, 1) and data.name == "CelebA (3-image subset)"
    np.testing.assert_array_equal(data.image, resized_faces(8)[[0, 4, 8]])


def decodings(faces, **options):
    """The images, and how many files were decoded for them."""
    with mock.patch.object(image_files, "resized", wraps=image_files.resized) as spy:
        return load(faces, **options).image, spy.call_count


def test_decoded_once(faces):
    first, decoded = decodings(faces)
    again, none = decodings(faces)
    assert (decoded, none) == (9, 0)
    np.testing.assert_array_equal(first, again)
    assert decodings(faces, crop=True)[1] == decodings(faces, size=9)[1] == 9
    assert decodings(faces)[1] == 0


def test_decoded_anew_where_the_files_are_others(faces):
    load(faces)
    (faces / "img_align_celeba" / "000001.jpg").write_bytes(FACES["000009.jpg"] + b"\0")
    changed, decoded = decodings(faces)
    assert decoded == 9
    np.testing.assert_array_equal(changed[0], resized_faces(8)[8])
    np.testing.assert_array_equal(changed[1:], resized_faces(8)[1:])
    assert decodings(faces)[1] == 0

    path = faces / "list_eval_partition.txt"
    path.write_text(path.read_text().replace("000003.jpg 2", "000003.jpg 1"))
    assert decodings(faces)[1] == 9
    path.write_text(path.read_text().replace("000003.jpg 1\n", ""))
    assert decodings(faces)[1] == 8


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda raw: raw[: len(raw) // 2], "cannot be read"),
        (lambda raw: b"", "cannot be read"),
        (lambda raw: b"notes" * 100, "cannot be read"),
        (lambda raw: raw[:600] + bytes([raw[600] ^ 1]) + raw[601:], "cannot be read: Bad CRC-32"),
    ],
)
def test_a_damaged_file_of_decoded_images_is_refused(faces, refusal, damage, message):
    load(faces)
    path = faces / "celeba_8.npz"
    path.write_bytes(damage(path.read_bytes()))
    refusal(lambda: load(faces), path, message, "delete it to decode again")
    path.unlink()
    np.testing.assert_array_equal(load(faces).image, resized_faces(8))


def test_altered_decoded_images_are_refused(faces, refusal):
    load(faces)
    path = faces / "celeba_8.npz"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["images"][3, 3, 3, 0] ^= 1
    np.savez(path, **arrays)
    refusal(lambda: load(faces), path, "checksum mismatch", "delete it")


def test_a_folder_that_cannot_be_written(faces, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    np.testing.assert_array_equal(load(faces).image, resized_faces(8))
    assert not list(faces.glob("*.npz")) and decodings(faces)[1] == 9


def test_a_full_disk_leaves_nothing_behind(faces, monkeypatch):
    def refuse(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    np.testing.assert_array_equal(load(faces).image, resized_faces(8))
    assert sorted(path.name for path in faces.iterdir()) == ["img_align_celeba", "list_eval_partition.txt"]


def relisted(text):
    return lambda faces: (faces / "list_eval_partition.txt").write_text(text)


def replaced(raw):
    return lambda faces: (faces / "img_align_celeba" / "000002.jpg").write_bytes(raw)


@pytest.mark.parametrize(
    "spoil, pieces",
    [
        (lambda faces: (faces / "list_eval_partition.txt").unlink(), ["no file list_eval_partition.txt", "download"]),
        (lambda faces: shutil.rmtree(faces / "img_align_celeba"), ["no folder img_align_celeba", ".zip"]),
        (lambda faces: (faces / "img_align_celeba" / "000004.jpg").unlink(), ["9 images", "lacks 1: 000004.jpg"]),
        (replaced(FACES["000002.jpg"][:2000]), ["000002.jpg", "not an image that can be read", "truncated"]),
        (replaced(b""), ["000002.jpg", "not an image that can be read"]),
        (replaced(jpeg(2, (218, 178))), ["000002.jpg", "218 x 178 pixels, those of CelebA have 178 x 218"]),
        (relisted("000001.jpg 0\n000002.jpg 1\n000001.jpg 2\n"), ["line 3", "000001.jpg is listed twice"]),
        (
            relisted("000001.jpg 0\n000002.jpg 3\n"),
            ["list_eval_partition.txt", "line 2", "0, 1 or 2", "'000002.jpg 3'"],
        ),
        (relisted("image_id,partition\n000001.jpg,0\n"), ["list_eval_partition.txt", "line 1", "0, 1 or 2"]),
        (relisted("000001.jpg 0\n000002.jpg 2\n"), ["list_eval_partition.txt", "no image of partition 1"]),
        (relisted(""), ["no image of partition 0"]),
    ],
)
def test_what_is_wrong_is_one_line(faces, refusal, spoil, pieces):
    spoil(faces)
    refusal(lambda: load(faces), *pieces)
    assert not list(faces.glob("*.npz"))


def test_damaged_archives(faces, refusal):
    path = faces / "img_align_celeba.zip"
    shutil.rmtree(faces / "img_align_celeba")
    path.write_bytes(b"<html>not found</html>")
    refusal(lambda: load(faces), path, "zip archive")
    with zipfile.ZipFile(path, "w") as packed:
        for name, raw in FACES.items():
            packed.writestr(name, raw)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(FACES["000002.jpg"][-30:], bytes(30)))
    refusal(lambda: load(faces), path, "000002.jpg", "Bad CRC-32")
    path.write_bytes(_in_heads(raw, 6, 8, 1))
    refusal(lambda: load(faces), path, "encrypted")
    path.write_bytes(_in_heads(raw, 8, 10, 9))
    refusal(lambda: load(faces), path, "compression method is not supported")


def _in_heads(raw: bytes, local: int, central: int, value: int) -> bytes:
    """A zip archive with a byte changed in the heads of all members, in both places that say it."""
    changed = bytearray(raw)
    for mark, offset in ((b"PK\3\4", local), (b"PK\1\2", central)):
        begin = -1
        while (begin := raw.find(mark, begin + 1)) >= 0:
            changed[begin + offset] = value
    return bytes(changed)


def test_sources(tmp_path, refusal):
    refusal(lambda: celeba.load("zip", str(tmp_path), 8, False), "source of CelebA 'zip'", "archive, tfds")
    refusal(lambda: celeba.load("archive", None, 8, False), "CelebA", "--data_dir")
    refusal(lambda: celeba.load("tfds", str(tmp_path), 8, False), "no prepared TFDS data of CelebA", "'celeb_a'")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Where tfds's own builder has prepared the nine images (given to it as files, so without TensorFlow)."""
    import tensorflow_datasets as tfds

    builder_class = tfds.builder_cls("celeb_a")
    names = ("train", "validation", "test")

    def generate(self, part):
        for name, own in PARTITION_OF.items():
            if own == part:
                blank = {field: dict.fromkeys(self.info.features[field], 0) for field in ("landmarks", "identity")}
                marks = dict.fromkeys(self.info.features["attributes"], False)
                yield name, {"image": io.BytesIO(FACES[name]), "attributes": marks, **blank}

    root = tmp_path_factory.mktemp("tfds")
    splits = lambda self, _: {name: self._generate_examples(part) for part, name in enumerate(names)}
    with mock.patch.multiple(builder_class, _split_generators=splits, _generate_examples=generate):
        tfds.builder("celeb_a", data_dir=root, file_format="array_record").download_and_prepare()
    return root


def test_prepared_by_tfds(prepared, tmp_path, refusal):
    root = shutil.copytree(prepared, tmp_path / "tfds")
    data, again = (celeba.load("tfds", str(root), 8, False) for _ in range(2))
    assert data.name == "CelebA (9-image subset)" and data.partitions == PARTITIONS
    np.testing.assert_array_equal(data.image, again.image)
    assert len(list(root.glob("celeb_a/*/celeba_8.npz"))) == 1
    for part in np.split(np.arange(9), np.cumsum(PARTITIONS)[:2]):  # tfds shuffles within a split
        assert {image.tobytes() for image in data.image[part]} == {image.tobytes() for image in resized_faces(8)[part]}
    (shard,) = root.glob("celeb_a/*/*train*")
    shard.write_bytes(shard.read_bytes()[:100])
    refusal(lambda: celeba.load("tfds", str(root), 8, False), shard.parent, "cannot read")


def test_real_faces(data_dir, tmp_path):
    """A hundred of each partition, beside which nothing is written."""
    place = data_dir.resolve() / "celeba"
    if not (place / "img_align_celeba").is_dir():
        pytest.skip("no celeba/img_align_celeba folder among the real data")
    (tmp_path / "img_align_celeba").symlink_to(place / "img_align_celeba")
    lines = (place / "list_eval_partition.txt").read_text().splitlines()
    parts = [[line for line in lines if line.endswith(f" {part}")][:100] for part in range(3)]
    (tmp_path / "list_eval_partition.txt").write_text("\n".join(sum(parts, [])))
    data = load(tmp_path, 32)
    assert data.name == "CelebA (300-image subset)" and data.partitions == (100, 100, 100)
    np.testing.assert_allclose(data.image.mean((0, 1, 2)) / 255, [0.506, 0.425, 0.383], atol=0.03)
