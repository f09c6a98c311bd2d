"""Named sets of event sequences: which files have them, in what unit of time, and how they are quoted."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.data.errors import DataError
from experiments.data.event_formats import Sequences, joined, read
from experiments.data.files import find

_FOLDERS = ("tpp", ".")  # of --data_dir
UNITS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86_400.0}  # name -> seconds
STORED = "stored"  # the unit of a file that does not say what it is


class Source(NamedTuple):
    """A set of sequences.

    Attributes:
      quote: its name.
      files: the first that is there is read, the original before a part of it.
      unit: that of the times in these files, or STORED.
      num_marks: marks there must be; None: as many as the files have.
      whole: sequences and events of the original, where they are known.
      by_item: in a CSV file a sequence is an item, and its marks are users.
      parts: all files are read, one after the other, and not the first alone.
    """

    quote: str
    files: tuple[str, ...]
    unit: str = "seconds"
    num_marks: int | None = None
    whole: tuple[int, int] | None = None
    by_item: bool = False
    parts: bool = False


# The counts are those of the published sets. Of files without a stated unit it is what makes their times whole numbers
# of seconds, or for the book order of milliseconds, and, of those with an end, the published length of observation.
# Mooc has 97 marks; the 98 categories of the CMANP paper (Appendix C.1.2) are these and that of padding.
SOURCES = {
    "stackoverflow": Source("StackOverflow", ("stackoverflow.npz",), num_marks=22),
    "mooc": Source("Mooc", ("mooc.csv", "mooc.npz", "mooc_valtest.npz"), num_marks=97, whole=(7047, 411_749)),
    "reddit": Source("Reddit", ("reddit.csv", "reddit.npz"), num_marks=984, whole=(10_000, 672_447)),
    "wikipedia": Source(
        "Wikipedia", ("wikipedia.csv", "wikipedia.npz"), num_marks=8227, whole=(1000, 157_474), by_item=True
    ),
    "book_order": Source("Book order", ("book_order.npz", "book_order_split1.npz"), "minutes", num_marks=2),
    "yelp": Source("Yelp Toronto", ("yelp_toronto.npz",), num_marks=1),
    "yelp_airport": Source("Yelp airport", ("yelp_airport_unmarked.npz",), "hours", num_marks=1),
    "yelp_mississauga": Source("Yelp Mississauga", ("yelp_mississauga_unmarked.npz",), "hours", num_marks=1),
    "pubg": Source("PUBG", ("pubg_unmarked.npz",), "minutes", num_marks=1),
    "reddit_comments": Source("Reddit comments", ("reddit_askscience_comments_unmarked.npz",), "hours", num_marks=1),
    "taxi": Source("Taxi", ("taxi_unmarked.npz",), "hours", num_marks=1),
    "twitter": Source("Twitter", ("twitter_unmarked.npz",), "hours", num_marks=1),
    "easytpp": Source("EasyTPP files", ("train.json", "dev.json", "test.json"), STORED, parts=True),
    "sequences": Source("Own sequences", ("sequences.npz", "sequences.json"), STORED),
}


def read_source(source: Source, data_dir: str | None) -> Sequences:
    """The sequences of `source` from the folder `data_dir` or its folder tpp.

    Raises DataError, one line, for no folder, no file, what event_formats.read refuses, and another number of marks.
    """
    if data_dir is None:
        raise DataError(f"the event sequences of {source.quote} are read from a folder: pass --data_dir")
    if not Path(data_dir).is_dir():
        raise DataError(f"no folder {data_dir}: --data_dir must be the folder of the files of {source.quote}")
    folders = [Path(data_dir, folder) for folder in _FOLDERS]
    groups = [(name,) for name in source.files] if source.parts else [source.files]
    paths = [_located(names, folders, source) for names in groups]
    found = joined(read(path, source.by_item) for path in paths)
    wanted = source.num_marks or found.num_marks
    if found.num_marks > wanted:
        raise DataError(f"{paths[0]}: mark {found.num_marks - 1} is not among the 0 to {wanted - 1} of {source.quote}")
    return found._replace(num_marks=wanted)


def quoted(source: Source, sequences: int, events: int) -> str:
    """'Mooc (2,537 of 7,047 sequences, re-split)', by what was read; of all sequences, by the events of these."""
    if source.whole == (sequences, events):
        return f"{source.quote} (re-split)"
    if source.whole and source.whole[0] == sequences:
        return f"{source.quote} ({events:,} of {source.whole[1]:,} events, re-split)"
    of_whole = f" of {source.whole[0]:,}" if source.whole else ""
    return f"{source.quote} ({sequences:,}{of_whole} sequences, re-split)"


def _located(names: Sequence[str], folders: Sequence[Path], source: Source) -> Path:
    path = find(names, folders)
    if path is None:
        raise DataError(f"no file {' or '.join(names)} of {source.quote}; looked in {', '.join(map(str, folders))}")
    return path
