"""Small EMNIST and CelebA in the formats of the originals, for tests to write, damage and read."""

import gzip
import io
from pathlib import Path

import numpy as np
from PIL import Image

LETTERS = {"train": 94, "test": 47}  # images of each split, in turns of all classes
PARTITIONS = (4, 2, 3)
PARTITION_OF = dict(zip((f"{number:06d}.jpg" for number in range(1, 10)), (0, 0, 2, 0, 1, 2, 1, 0, 2)))


def idx_bytes(array: np.ndarray, code: int = 0x08) -> bytes:
    """The IDX file of an array whose elements are big-endian already."""
    return bytes([0, 0, code, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def upright(split: str) -> tuple[np.ndarray, np.ndarray]:
    """(images [n, 28, 28] of the letter L, whose foot grows with its label; labels [n])."""
    label = np.arange(LETTERS[split], dtype=np.uint8) % 47
    image = np.zeros((len(label), 28, 28), np.uint8)
    image[:, 2:26, 4] = 255
    for one, foot in zip(image, label):
        one[25, 4 : 5 + foot // 2] = 200 + foot
    return image, label


def write_letters(folder: Path) -> Path:
    """The four files of EMNIST, whose images are transposed."""
    folder.mkdir()
    for split in LETTERS:
        image, label = upright(split)
        for part, array in {"images-idx3": image.transpose(0, 2, 1), "labels-idx1": label}.items():
            (folder / f"emnist-balanced-{split}-{part}-ubyte.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return folder


def jpeg(number: int, size: tuple[int, int] = (178, 218)) -> bytes:
    """A picture with its number in red, and places in green and blue."""
    width, height = size
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[..., 0] = 25 * number
    pixels[..., 1] = np.linspace(0, 255, width)
    pixels[..., 2] = np.linspace(0, 255, height)[:, None]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=95)
    return file.getvalue()


FACES = {name: jpeg(number) for number, name in enumerate(PARTITION_OF)}


def write_faces(folder: Path) -> Path:
    """The folder and the list of CelebA."""
    (folder / "img_align_celeba").mkdir(parents=True)
    for name, raw in FACES.items():
        (folder / "img_align_celeba" / name).write_bytes(raw)
    (folder / "list_eval_partition.txt").write_text("".join(f"{n} {part}\n" for n, part in PARTITION_OF.items()))
    return folder


def resized_faces(size: int) -> np.ndarray:
    """uint8 [9, size, size, 3] by partition: Pillow's default filter on whole images, as published."""
    order = sorted(FACES, key=PARTITION_OF.get)
    return np.stack([np.asarray(Image.open(io.BytesIO(FACES[name])).resize((size, size))) for name in order])
