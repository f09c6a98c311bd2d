"""Many image files of one shape, decoded once: in parallel, at one size, and kept beside the data.

The decoded images are kept as `<name>_<size>.npz`, or `<name>_<size>_cropped.npz`: `images`, the SHA-256 of what they
were made of (names and sizes of the files, size, crop), and the SHA-256 of the images themselves. Other files beside
it, or a new list of them, are decoded anew. A damaged file is refused, since what damaged it may have damaged more.
Where the folder cannot be written, nothing is kept, and the next run decodes again.
"""

import contextlib
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import track

from experiments.data.errors import DataError
from experiments.harness.errors import first_line
from experiments.harness.run_directory import moved_into

_CHUNK = 64  # images that a thread decodes before it takes others
# What damaged images raise; zipfile a RuntimeError where the head of a member asks for a password, or another method.
_DAMAGE = OSError, RuntimeError, SyntaxError, ValueError, Image.DecompressionBombError, zipfile.BadZipFile, zlib.error


class ImageFiles(NamedTuple):
    """Colour images that are not decoded yet.

    name      of the data set, in names of files and in messages
    folder    where the decoded images are kept
    pixels    (width, height) of every image
    contents  for each file, in order: what tells it from another, such as 'name bytes'
    read      number of an image -> (what to call it in a message, the bytes of its file)
    """

    name: str
    folder: Path
    pixels: tuple[int, int]
    contents: Sequence[str]
    read: Callable[[int], tuple[str, bytes]]


def images(files: ImageFiles, count: int, size: int, crop: bool) -> np.ndarray:
    """The first `count` images as uint8 [count, size, size, 3], see `resized`.

    Raises DataError, one line that names the file, for an image that is missing, damaged or of another shape, and for
    kept images that are damaged.
    """
    made_of = _sha256("\n".join([f"{count} {size} {crop}", *files.contents]).encode())
    path = files.folder / f"{files.name.lower()}_{size}{'_cropped' * crop}.npz"
    kept = _kept(path, made_of)
    if kept is not None:
        return kept
    decoded = _decoded(files, count, size, crop)
    with contextlib.suppress(OSError), moved_into(path) as file:
        np.savez(file, images=decoded, made_of=made_of, sha256=_sha256(decoded))
    return decoded


def resized(image: Image.Image, size: int, crop: bool = False) -> np.ndarray:
    """uint8 [size, size(, channels)]: the whole image, or with `crop` its central square, by Pillow's bicubic filter.

    The published code of CMANP resizes so, without a crop, to a square: faces become wider than they are.
    """
    if crop:
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        image = image.crop((left, top, left + side, top + side))
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC))


@contextlib.contextmanager
def readable(image: Any) -> Iterator[None]:
    """What fails within while `image` is read is raised as a DataError of one line that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"no image {image}") from error
    except _DAMAGE as error:
        raise DataError(f"{image}: not an image that can be read: {first_line(error)}") from error


def _decoded(files: ImageFiles, count: int, size: int, crop: bool) -> np.ndarray:
    decoded = np.empty((count, size, size, 3), np.uint8)

    def decode(start: int) -> None:
        for number in range(start, min(start + _CHUNK, count)):
            name, raw = files.read(number)
            with readable(name), Image.open(io.BytesIO(raw)) as image:
                if image.size != files.pixels:
                    raise DataError(f"{name}: {_by(image.size)} pixels, those of {files.name} have {_by(files.pixels)}")
                decoded[number] = resized(image.convert("RGB"), size, crop)

    console, starts = Console(stderr=True), range(0, count, _CHUNK)
    with ThreadPoolExecutor() as pool:  # Pillow decodes and resizes without the interpreter's lock
        done, what = pool.map(decode, starts), f"decoding {count:,} images of {files.name}"
        for _ in track(done, what, total=len(starts), console=console, disable=not console.is_terminal):
            pass  # raises what `decode` raised
    return decoded


def _kept(path: Path, made_of: str) -> np.ndarray | None:
    """The images in the file `path`; None where there is none, or it was made of something else."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            if str(file["made_of"]) != made_of:
                return None
            kept, intact = file["images"], str(file["sha256"])
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read: {first_line(error)}; delete it to decode again") from error
    if _sha256(kept) != intact:
        raise DataError(f"{path}: checksum mismatch: these decoded images are damaged; delete it to decode again")
    return kept


def _sha256(data: bytes | np.ndarray) -> str:
    return hashlib.sha256(data).hexdigest()


def _by(pixels: tuple[int, int]) -> str:
    return f"{pixels[0]} x {pixels[1]}"
