"""Files of event sequences: NumPy's npz, JSON of two kinds, and the CSV files of JODIE.

suffix  what is in it
.npz    `times` and `offsets`, where each sequence begins in it and their end; `marks`, 0-based; with a scalar `t_max`
        every sequence is observed from 0 to it
.json   {"sequences": [{"arrival_times", "marks", "t_start", "t_end"}, ...], "num_marks"}, as of Shchur et al. 2020; or
        sequences {"time_since_start", "type_event", "dim_process"} in a list or one a line, as EasyTPP has them
.csv    a line 'user_id,item_id,timestamp,...' for each event (Kumar et al. 2019): a sequence is a user and its marks
        are items, or the other way round

Without marks there is one. Pickles are not read: they may run any program.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.data.errors import DataError
from experiments.data.files import read_bytes
from experiments.harness.errors import first_line
from kvq_jax.names import unknown

Row = tuple[Any, Any, Any, Any]  # times, marks or None, start or None, end or None
# What damaged files raise; zipfile a RuntimeError where a damaged head asks for a later version, or for a password.
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, OverflowError, RuntimeError, zipfile.BadZipFile, zlib.error)


class Sequences(NamedTuple):
    """Sequences one after the other, in the unit of their file."""

    times: np.ndarray  # float64 [events], not decreasing within a sequence
    marks: np.ndarray  # int32 [events], 0 <= mark < num_marks
    offsets: np.ndarray  # int64 [sequences + 1]: the first event of each, and the number of events
    start: np.ndarray  # float64 [sequences], of observation; NaN where the file does not say
    end: np.ndarray  # float64 [sequences]; NaN where the file does not say
    num_marks: int


def read(path: Path, by_item: bool = False) -> Sequences:
    """The sequences in the file `path`; of a CSV file with `by_item` those of items, else those of users.

    Raises DataError, one line with the file and the number of the sequence, from 0: for a file that is missing,
    damaged or of another kind, or has no sequences; for times that decrease or are not finite; for a mark that is no
    integer from 0 to the number of marks; and for a sequence that begins after its first event, ends before its last,
    or has no events and not both a start and an end.
    """
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix not in _FORMATS:
        raise DataError(f"{path}: {unknown('format of event sequences', suffix, _FORMATS)}")
    raw = read_bytes(path)
    try:
        return _checked(_FORMATS[suffix](raw, by_item), path)
    except _DAMAGE as error:
        raise DataError(f"{path}: damaged {suffix} file of event sequences: {_told(error)}") from error


def joined(parts: Iterable[Sequences]) -> Sequences:
    """The sequences of several files, in their order."""
    parts = list(parts)
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    arrays = (np.concatenate([getattr(part, name) for part in parts]) for name in ("times", "marks", "start", "end"))
    times, marks, start, end = arrays
    return Sequences(times, marks, _offsets(counts), start, end, max(part.num_marks for part in parts))


def _npz(raw: bytes, by_item: bool) -> Sequences:
    with np.load(io.BytesIO(raw), allow_pickle=False) as file:
        if not {"times", "offsets"} <= set(file.files):
            raise ValueError(f"expected arrays times and offsets, it has {', '.join(file.files)}")
        arrays = dict(file)
    times, offsets = np.asarray(arrays["times"], float), arrays["offsets"]
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or not len(offsets) or times.ndim != 1:
        raise ValueError(f"times {list(times.shape)} and {offsets.dtype} offsets {list(offsets.shape)} are not vectors")
    offsets = offsets.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != len(times) or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets do not run from 0 to the {len(times)} times")
    ends = (0.0, _finite(arrays["t_max"])) if "t_max" in arrays else (np.nan, np.nan)
    start, end = (np.full(len(offsets) - 1, value) for value in ends)
    marks = _integers(arrays["marks"]) if "marks" in arrays else np.zeros(len(times), int)
    return Sequences(times, marks, offsets, start, end, _number(marks))


def _json(raw: bytes, by_item: bool) -> Sequences:
    text = raw.decode()
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if "Extra data" not in str(error):
            raise
        content = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(content, dict) and "sequences" in content:
        rows = content["sequences"]
        said = [content["num_marks"]] if "num_marks" in content else []
        return _of_rows(rows, lambda row: (row["arrival_times"], *map(row.get, ("marks", "t_start", "t_end"))), said)
    rows = content if isinstance(content, list) else [content]
    said = {row["dim_process"] for row in rows if "dim_process" in row}
    return _of_rows(rows, lambda row: (row["time_since_start"], row["type_event"], None, None), said)


def _csv(raw: bytes, by_item: bool) -> Sequences:
    head = raw[: raw.find(b"\n") + 1]
    if not head.startswith(b"user") or head.count(b",") < 2:
        raise ValueError(
            f"expected the line 'user_id,item_id,timestamp,...', got {head[:60].decode('ascii', 'replace')!r}"
        )
    if not raw[len(head) :].strip():
        raise ValueError("no events")
    if raw.rstrip(b"\n").rpartition(b"\n")[2].count(b",") < head.count(b","):
        raise ValueError("the last line is not whole: the file was cut short")
    rows = np.loadtxt(io.BytesIO(raw), delimiter=",", skiprows=1, usecols=(0, 1, 2), ndmin=2)
    owner, mark = (_integers(rows[:, column]) for column in ((1, 0) if by_item else (0, 1)))
    _, of_event, counts = np.unique(owner, return_inverse=True, return_counts=True)
    order = np.argsort(of_event, kind="stable")
    ends = np.full(len(counts), np.nan)
    return Sequences(rows[order, 2], mark[order], _offsets(counts), ends, ends, _number(mark))


_FORMATS = {".npz": _npz, ".json": _json, ".csv": _csv}


def _of_rows(rows: list[dict], parts: Callable[[dict], Row], said: Iterable[int]) -> Sequences:
    """Sequences of JSON, each of the parts of a row. `said`: the numbers of marks that the file tells, if it does."""
    times, marks, ends = [], [], []
    for number, row in enumerate(rows):
        try:
            time, mark, *bounds = parts(row)
            times.append(np.asarray(time, float))
            marks.append(np.zeros(len(time), int) if mark is None else _integers(mark))
            ends.append([np.nan if bound is None else _finite(bound) for bound in bounds])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"sequence {number}: {_told(error)}") from error
        if times[-1].ndim != 1 or marks[-1].shape != times[-1].shape:
            shapes = list(times[-1].shape), list(marks[-1].shape)
            raise ValueError(f"sequence {number}: times {shapes[0]} with marks {shapes[1]}")
    counts = np.array([len(time) for time in times], int)
    start, end = np.array(ends, float).reshape(-1, 2).T
    marks = np.concatenate([np.zeros(0, int), *marks])
    num_marks = max(map(int, said), default=_number(marks))
    return Sequences(np.concatenate([np.zeros(0), *times]), marks, _offsets(counts), start, end, num_marks)


def _checked(found: Sequences, path: Path) -> Sequences:
    """The sequences, once every one of them is what it should be."""
    counts = np.diff(found.offsets)
    if not len(counts):
        raise DataError(f"{path}: no sequences")
    of_event = np.repeat(np.arange(len(counts)), counts)

    def refuse(wrong: np.ndarray, number: np.ndarray, why) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            raise DataError(f"{path}: sequence {number[first]}: {why(first)}")

    if found.marks.shape != found.times.shape:
        raise DataError(f"{path}: {len(found.marks)} marks for {len(found.times)} times")
    every, times = np.arange(len(counts)), found.times
    refuse(~np.isfinite(times), of_event, lambda i: f"a time is {times[i]}")
    refuse((np.diff(times) < 0) & (np.diff(of_event) == 0), of_event, lambda i: f"time {times[i + 1]} after {times[i]}")
    refuse(
        (found.marks < 0) | (found.marks >= found.num_marks),
        of_event,
        lambda i: f"mark {found.marks[i]} is not among 0 to {found.num_marks - 1}",
    )
    bounded = ~np.isnan(found.start) & ~np.isnan(found.end)
    refuse((counts == 0) & ~bounded, every, lambda i: "no events, and no start and end of observation")
    refuse(bounded & (found.start > found.end), every, lambda i: f"ends at {found.end[i]}, before its start")
    full = np.flatnonzero(counts)  # comparisons with NaN are False
    first, last = times[found.offsets[full]], times[found.offsets[full + 1] - 1]
    refuse(found.start[full] > first, full, lambda i: f"starts at {found.start[full][i]}, after its first event")
    refuse(found.end[full] < last, full, lambda i: f"ends at {found.end[full][i]}, before its last event")
    return found._replace(marks=found.marks.astype(np.int32))


def _integers(values: Any) -> np.ndarray:
    """Marks or names as int64. Raises ValueError where one is no integer."""
    given = np.asarray(values)
    if not given.size:
        return np.zeros(given.shape, int)
    if given.dtype.kind not in "iuf":
        raise ValueError(f"{given.dtype} where integers belong")
    wrong = given != np.floor(given) if given.dtype.kind == "f" else np.zeros(given.shape, bool)
    if wrong.any() or abs(given.astype(float)).max() >= 2**31:
        raise ValueError(f"{given[wrong][0] if wrong.any() else given.max()} where a 32-bit integer belongs")
    return given.astype(np.int64)


def _finite(bound: Any) -> float:
    """When observation begins or ends."""
    if not np.isfinite(float(bound)):
        raise ValueError(f"observation that begins or ends at {float(bound)}")
    return float(bound)


def _told(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else first_line(error)


def _number(marks: np.ndarray) -> int:
    """As many marks as the largest says, and one at least."""
    return max(1, int(marks.max(initial=0)) + 1)


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
