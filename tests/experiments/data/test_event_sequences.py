"""Event sequences: each kind of file is read back as written, what is observed is as stated, and damage is one line."""

import gzip
import json
import math

import jax
import numpy as np
import pytest

from experiments.data.errors import DataError
from experiments.data.event_formats import read
from experiments.data.event_sequences import EventData, event_sets, gap_statistics, load, split, unit_scale
from experiments.data.event_sources import SOURCES, Source, quoted
from experiments.harness.errors import ConfigError
from experiments.harness.settings import build
from kvq_jax.models.event_processes.events import Events, number

NAN = math.nan
TIMES, MARKS = [[1.0, 2.0, 2.0, 5.0], [0.5, 4.0]], [[0, 2, 1, 0], [1, 1]]  # two sequences
HEAD = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
# As JODIE has them: by time, users and items mixed, as many features as there may be.
JODIE = HEAD + "1,1,0.5,0,0.1,0.2\n0,0,1.0,0,0.1\n0,2,2.0,0,0.1\n0,1,2.0,1,0.3\n1,1,4.0,0,\n0,0,5.0,0,0.1\n"
ROWS = [dict(time_since_start=time, type_event=mark, dim_process=3, seq_idx=0) for time, mark in zip(TIMES, MARKS)]
OWN = dict(sequences=[dict(arrival_times=time, marks=mark) for time, mark in zip(TIMES, MARKS)], num_marks=3)


def npz(path, **changes):
    arrays = dict(times=sum(TIMES, []), offsets=(0, 4, 6), marks=sum(MARKS, [])) | changes
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items() if array is not None})
    return path


def written(folder, name, text):
    (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
    return folder / name


def test_every_kind_of_file_gives_the_same_sequences(tmp_path):
    files = [
        npz(tmp_path / "a.npz"),
        written(tmp_path, "b.json", OWN),
        written(tmp_path, "c.json", ROWS),
        written(tmp_path, "d.json", "\n".join(map(json.dumps, ROWS)) + "\n"),
        written(tmp_path, "e.csv", JODIE),
    ]
    packed = tmp_path / "e.csv.gz"
    packed.write_bytes(gzip.compress(JODIE.encode(), mtime=0))
    for path in (*files, packed):
        found = read(path)
        assert found.num_marks == 3 and np.isnan([found.start, found.end]).all()
        np.testing.assert_array_equal(found.offsets, [0, 4, 6])
        np.testing.assert_array_equal(found.times, sum(TIMES, []))
        np.testing.assert_array_equal(found.marks, sum(MARKS, []))
    by_item = read(files[-1], by_item=True)
    np.testing.assert_array_equal(by_item.offsets, [0, 2, 5, 6])
    np.testing.assert_array_equal(by_item.times, [1, 5, 0.5, 2, 4, 2])
    np.testing.assert_array_equal(by_item.marks, [0, 0, 1, 0, 1, 0])


def test_files_may_tell_when_observation_begins_and_ends(tmp_path):
    own = dict(sequences=[dict(arrival_times=[1, 2], t_start=0, t_end=4), dict(arrival_times=[], t_start=1, t_end=2)])
    found = read(written(tmp_path, "a.json", own))
    np.testing.assert_array_equal([found.start, found.end], [[0, 1], [4, 2]])
    assert found.num_marks == 1 and not found.marks.any()
    found = read(npz(tmp_path / "b.npz", marks=None, t_max=6.0))
    np.testing.assert_array_equal([found.start, found.end], [[0, 0], [6, 6]])


def sets_of(tmp_path, rows, **changes):
    """What becomes of JSON rows (times, marks, start, end): all sequences of all splits."""
    names = ("arrival_times", "marks", "t_start", "t_end")
    found = read(written(tmp_path, "a.json", dict(sequences=[dict(zip(names, row)) for row in rows], num_marks=9)))
    return event_sets(found, "Name", 1.0, settings(**changes))


def settings(**changes):
    section = dict(name="sequences", unit="stored", least_gap=0.25, max_events=100, classes=2, split_seed=0) | changes
    return build(EventData, section, "config.data")


def by_first_mark(sets):
    """{first mark: (gaps, marks, rest)} of every sequence of all splits, as lists."""
    found = {}
    for batch in sum(map(list, sets.data.values()), []):
        for gap, mark, mask, rest in zip(*batch):
            found[int(mark[0])] = gap[mask].tolist(), mark[mask].tolist(), float(rest)
            assert not gap[~mask].any() and not mark[~mask].any()
    return found


def test_what_is_observed_by_hand(tmp_path):
    """Start and end given; only the start; only the end; neither. A first event may be the start; ties are raised."""
    rows = [
        ([1.0, 3.0], [1, 8], 0.5, 7.0),
        ([1.0, 3.0], [2, 8], 1.0, None),
        ([1.0, 3.0, 3.0], [8, 3, 8], None, 3.5),
        ([1.0, 3.0, 3.5], [8, 4, 8], None, None),
        ([1e9, 1e9 + 3.0], [8, 5], None, None),
        ([2.0], [8], None, None),  # nothing is left of it
    ]
    sets = sets_of(tmp_path, rows)
    assert by_first_mark(sets) == {
        1: ([0.5, 2.0], [1, 8], 4.0),
        2: ([0.25, 2.0], [2, 8], 0.0),
        3: ([2.0, 0.25], [3, 8], 0.5),
        4: ([2.0, 0.5], [4, 8], 0.0),
        5: ([3.0], [5], 0.0),
    }
    assert sets.num_marks == 9 and sets.facts["left_out_sequences"] == 1
    assert sets.facts["raised_gaps"] == pytest.approx(2 / 9)  # the event at its start, and the tie
    assert sets.facts["first_event_is_start"] == pytest.approx(4 / 6)
    assert sets.facts["ends_at_last_event"] == pytest.approx(4 / 6)
    assert sum(sets.facts["sequences"].values()) == 5 and sum(sets.facts["events"].values()) == 9


def test_longer_sequences_are_cut_and_their_end_is_their_last_event(tmp_path):
    rows = [([1.0, 2.0, 4.0], [mark, 7, 7], 0.0, end) for mark, end in enumerate((9.0, 4.0, 5.0, None, 6.0))]
    sets = sets_of(tmp_path, rows, max_events=2)
    assert by_first_mark(sets) == {mark: ([1.0, 1.0], [mark, 7], 0.0) for mark in range(5)}
    assert sets.facts["cut_sequences"] == 1


def test_units():
    scale = lambda stored, unit: unit_scale(Source("Name", (), stored), unit)
    assert scale("seconds", "days") == pytest.approx(1 / 86_400)
    assert scale("hours", "minutes") == 60 and scale("hours", "stored") == 1


def test_the_split_is_by_sequence_and_seed(tmp_path):
    found = split(range(11), 3, "Name")
    assert [len(own) for own in found.values()] == [6, 2, 3]
    assert sorted(sum(found.values(), [])) == list(range(11))
    assert found == split(range(11), 3, "Name") != split(range(11), 4, "Name")


def test_sequences_lie_in_classes_by_length(tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 30, 60)
    rows = [(rng.exponential(size=length).cumsum() + 1, [3] * length, 0.0, None) for length in lengths]
    sets = sets_of(tmp_path, [(time.tolist(), *rest) for time, *rest in rows], classes=4)
    assert 1 < len(sets.classes.classes) <= 4 and sets.classes.classes[-1] == lengths.max()
    for part, share in (("train", 36), ("validation", 12), ("test", 12)):
        held = [np.asarray(number(batch)) for batch in sets.data[part]]
        assert sum(map(len, held)) == share == sets.facts["sequences"][part]
        for own, fewer, slots, batch in zip(held, (0, *sets.classes.classes), sets.classes.classes, sets.data[part]):
            assert batch.gap.shape == (len(own), slots) and batch.gap.dtype == np.float32
            assert ((fewer < own) & (own <= slots)).all()
    found = sorted(sum((np.asarray(number(batch)).tolist() for part in sets.data.values() for batch in part), []))
    assert found == sorted(lengths.tolist())
    drawn = jax.vmap(sets.classes.draw, (0, None))(jax.random.split(jax.random.key(0), 2), sets.data["train"])
    assert [one.gap.shape for one in drawn] == [(2, slots) for slots in sets.classes.classes]


def test_statistics_are_of_gaps_that_are_there():
    first = Events(np.array([[1.0, math.e, 5.0]]), np.zeros((1, 3), int), np.array([[True, True, False]]), np.zeros(1))
    second = Events(np.array([[math.e**2]]), np.zeros((1, 1), int), None, np.zeros(1))
    found = gap_statistics(first, second)
    np.testing.assert_allclose(found, [(1 + math.e + math.e**2) / 3, 1, np.std([0, 1, 2])])
    alike = first._replace(gap=np.full((1, 3), 0.3))
    np.testing.assert_allclose(gap_statistics(alike), [0.3, math.log(0.3), 1])  # what a model divides by


def test_sources_are_quoted_by_what_was_read(tmp_path):
    assert quoted(SOURCES["mooc"], 2537, 90_000) == "Mooc (2,537 of 7,047 sequences, re-split)"
    assert quoted(SOURCES["mooc"], 7047, 411_749) == "Mooc (re-split)"
    assert quoted(SOURCES["mooc"], 7047, 90_000) == "Mooc (90,000 of 411,749 events, re-split)"
    assert quoted(SOURCES["stackoverflow"], 10, 90) == "StackOverflow (10 sequences, re-split)"


@pytest.mark.parametrize("name", ["mooc", "reddit", "wikipedia"])
def test_the_original_files_of_jodie(tmp_path, name):
    """Users with their items, and for Wikipedia pages with their users; the number of marks is that of the original."""
    lines = [f"{event % 6},{(event * 5) % 9},{event * 60.0},0,0.5" for event in range(54)]
    written(tmp_path, f"{name}.csv", HEAD + "\n".join(lines) + "\n")
    sets = load(settings(name=name, unit="minutes", classes=1), tmp_path)
    owners, events = (9, 6) if name == "wikipedia" else (6, 9)
    assert sum(sets.facts["sequences"].values()) == owners and sets.num_marks == SOURCES[name].num_marks
    assert sum(sets.facts["events"].values()) == owners * (events - 1)  # the first is the start
    gap = 9 if name == "wikipedia" else 6
    np.testing.assert_allclose(np.concatenate([batch.gap for (batch,) in sets.data.values()]), gap)
    assert max(batch.mark.max() for (batch,) in sets.data.values()) == (5 if name == "wikipedia" else 8)


def test_easytpp_folders_are_read_as_a_whole(tmp_path):
    for name in ("train.json", "dev.json", "test.json"):
        written(tmp_path, name, ROWS)
    assert sum(load(settings(name="easytpp"), tmp_path).facts["sequences"].values()) == 6


def own(*rows, **more):
    return dict(sequences=list(rows)) | more


@pytest.mark.parametrize(
    "name, content, pieces",
    [
        ("a.json", own(dict(arrival_times=[1, 2]), dict(arrival_times=[2, 1])), ["sequence 1", "time 1.0 after 2.0"]),
        ("a.json", own(dict(arrival_times=[1, NAN])), ["sequence 0: a time is nan"]),
        ("a.json", own(dict(arrival_times=[1, math.inf])), ["sequence 0: a time is inf"]),
        ("a.json", own(dict(arrival_times=[1], marks=[3]), num_marks=3), ["sequence 0", "mark 3", "0 to 2"]),
        ("a.json", own(dict(arrival_times=[1], marks=[-1])), ["sequence 0: mark -1"]),
        ("a.json", own(dict(arrival_times=[1], marks=[0.5])), ["sequence 0: 0.5 where a 32-bit integer belongs"]),
        ("a.json", own(dict(arrival_times=[1], marks=["x"])), ["sequence 0", "where integers belong"]),
        ("a.json", own(dict(arrival_times=[1], marks=[0, 1])), ["sequence 0: times [1] with marks [2]"]),
        ("a.json", own(dict(arrival_times=["x"])), ["sequence 0", "'x'"]),
        ("a.json", own(dict(arrival_times=[[1], [2]])), ["sequence 0: times [2, 1]"]),
        ("a.json", own(dict(arrival_times=[1, 2]), dict(arrival_times=[])), ["sequence 1: no events"]),
        ("a.json", own(dict(arrival_times=[1], t_start=2)), ["sequence 0: starts at 2.0, after its first event"]),
        ("a.json", own(dict(arrival_times=[1], t_end=0.5)), ["sequence 0: ends at 0.5, before its last event"]),
        ("a.json", own(dict(arrival_times=[1], t_end=NAN)), ["sequence 0: observation that begins or ends at nan"]),
        ("a.json", own(dict(arrival_times=[], t_start=2, t_end=1)), ["sequence 0: ends at 1.0, before its start"]),
        ("a.json", own(), ["no sequences"]),
        ("a.json", own(dict(times=[1])), ["sequence 0: no 'arrival_times'"]),
        ("a.json", [dict(time_since_start=[1])], ["sequence 0: no 'type_event'"]),
        ("a.json", '{"sequences": [', ["damaged .json file"]),
        ("a.json", "[3]", ["damaged .json file"]),
        ("a.csv", "", ["expected the line 'user_id"]),
        ("a.csv", HEAD, ["no events"]),
        ("a.csv", "0,0,1.0,0\n", ["expected the line 'user_id"]),
        ("a.csv", HEAD + "0,0\n", ["damaged .csv file"]),
        ("a.csv", HEAD + "0,0,soon,0,0\n", ["damaged .csv file", "soon"]),
        ("a.csv", HEAD + "0,0.5,1.0,0,0\n", ["0.5 where a 32-bit integer belongs"]),
        ("a.csv", HEAD + "7,0,2.0,0,\n7,0,1.0,0,\n", ["sequence 0: time 1.0 after 2.0"]),
        ("a.csv", JODIE[: -len(",0,0.1\n")], ["the last line is not whole"]),
        ("a.pkl", "", ["unknown format of event sequences '.pkl'", ".npz"]),
        ("a.npz", "not a zip", ["damaged .npz file"]),
    ],
)
def test_damaged_files_are_one_line_that_names_them(tmp_path, refusal, name, content, pieces):
    path = written(tmp_path, name, content)
    refusal(lambda: read(path), path, *pieces)


@pytest.mark.parametrize(
    "arrays, piece",
    [
        (dict(offsets=(0, 4, 5)), "offsets do not run from 0 to the 6 times"),
        (dict(offsets=(0, 7, 6)), "offsets do not run from 0"),
        (dict(offsets=(0.0, 4.0, 6.0)), "are not vectors"),
        (dict(offsets=(0,), times=(), marks=()), "no sequences"),
        (dict(offsets=None), "expected arrays times and offsets, it has times, marks"),
        (dict(marks=(0, 1)), "2 marks for 6 times"),
        (dict(times=list("abcdef")), "damaged .npz file"),
        (dict(t_max=math.inf), "begins or ends at inf"),
        (dict(t_max=4.5), "sequence 0: ends at 4.5, before its last event"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(tmp_path, refusal, arrays, piece):
    path = npz(tmp_path / "a.npz", **arrays)
    refusal(lambda: read(path), path, piece)
    if piece == "no sequences":
        path.write_bytes(npz(tmp_path / "b.npz").read_bytes()[:-30])
        refusal(lambda: read(path), path, "damaged .npz file")


def test_what_cannot_be_loaded_is_one_line(tmp_path, refusal):
    refusal(lambda: load(settings(), None), "pass --data_dir")
    refusal(lambda: load(settings(), tmp_path / "none"), "no folder", tmp_path / "none")
    refusal(lambda: load(settings(name="mooc", unit="days"), tmp_path), "mooc.csv or mooc.npz", tmp_path / "tpp")
    npz(tmp_path / "sequences.npz")
    refusal(lambda: load(settings(), tmp_path), "Own sequences (2 sequences, re-split): 2 sequences are too few")
    npz(tmp_path / "book_order.npz")
    refusal(lambda: load(settings(name="book_order"), tmp_path), "book_order.npz: mark 2 is not among the 0 to 1")
    for changes, message in (
        (dict(unit="day"), "unknown config.data.unit 'day': did you mean 'days'"),
        (dict(unit="days"), "config.data.unit: Own sequences do not tell theirs: expected 'stored', got 'days'"),
        (dict(name="mook"), "unknown config.data.name 'mook': did you mean 'mooc'"),
        (dict(least_gap=0.0), "config.data.least_gap: expected float, above 0"),
        (dict(max_events=0), "config.data.max_events"),
    ):
        with pytest.raises(ConfigError, match=message):
            load(settings(**changes), tmp_path)


def test_no_events_to_train_on(tmp_path):
    rows = [([], [], 0.0, 1.0)] * 5
    with pytest.raises(DataError, match="Name: no events to train on"):
        sets_of(tmp_path, rows)


# Sequences and marks of the files that there are.
REAL = {
    "stackoverflow": (5128, 22),
    "mooc": (2537, 97),
    "wikipedia": (1000, 8227),
    "book_order": (200, 2),
    "yelp": (300, 1),
    "yelp_airport": (319, 1),
    "yelp_mississauga": (319, 1),
    "pubg": (3001, 1),
    "reddit_comments": (1356, 1),
    "taxi": (182, 1),
    "twitter": (2019, 1),
}


@pytest.mark.parametrize("name", REAL)
def test_real_sequences(data_dir, name):
    if not any((data_dir / "tpp" / file).exists() for file in SOURCES[name].files):
        pytest.skip(f"no {SOURCES[name].files[-1]} in the folder of real data")
    sets = load(settings(name=name, unit="hours", least_gap=1 / 3600, max_events=512, classes=6), data_dir)
    sequences, marks = REAL[name]
    assert sum(sets.facts["sequences"].values()) == sequences and sets.num_marks == marks
    assert sets.facts["unit"] == "hours" and sets.classes.waste < 1.5 and json.dumps(sets.facts)
    for batch in sum(map(list, sets.data.values()), []):
        assert np.isfinite(batch.gap).all() and (batch.rest >= 0).all()
        assert (batch.gap[batch.mask] >= np.float32(1 / 3600)).all() and batch.mark.max() < marks
