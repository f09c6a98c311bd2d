"""Real event sequences as arrays: gaps in a stated unit, split by sequence, in classes by length.

When observation begins. A sequence whose file gives its start has its first gap from there. One whose file gives none
begins at its first event: that event is where the clock starts, and is no event itself, so its mark is lost. When it
ends. A sequence whose file gives its end is observed without events after its last one; one whose file gives none ends
at its last event, and so does one that is cut to its first `max_events` events.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.data.errors import DataError
from experiments.data.event_formats import Sequences
from experiments.data.event_sources import SOURCES, STORED, UNITS, Source, quoted, read_source
from experiments.harness.errors import ConfigError
from experiments.harness.length_classes import LengthClasses, length_classes
from experiments.harness.settings import choose
from kvq_jax.domains import Count, Positive, Seed
from kvq_jax.models.event_processes.events import Events, whole_mask

SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}  # of the sequences, rounded down but for the last
_SAME = 1e-6  # a standard deviation below is rounding


@dataclasses.dataclass(frozen=True)
class EventData:
    """Which sequences, and what is made of them: the config's section `data`.

    Attributes:
      name: of event_sources.SOURCES.
      unit: of the gaps: seconds, minutes, hours or days; or stored, that of the file.
      least_gap: gaps below it, ties among them, are set to it; in this unit.
      max_events: longer sequences are cut to their first events.
      classes: numbers of slots, at most.
      split_seed: of the shuffle before the split.
    """

    name: str
    unit: str
    least_gap: Positive
    max_events: Count
    classes: Count
    split_seed: Seed


class GapStatistics(NamedTuple):
    """Of all gaps there are: what scales the input of a model, and where its output starts."""

    mean_gap: float
    mean_log_gap: float
    std_log_gap: float  # 1 where all gaps are the same: a model divides by it


class EventSets(NamedTuple):
    """Sequences that are ready to be learnt.

    Attributes:
      data: of 'train', 'validation' and 'test' the sequences of each class, Events [n, slots]. What LengthClasses.draw
        takes.
      classes: the length classes, chosen for 'train'.
      num_marks: number of kinds of events.
      statistics: of the gaps of 'train'.
      facts: JSON values for result.json: the quoted name, unit and number of marks; sequences and events of each split;
        the shares of sequences whose first event is their start, that end at their last event, and that were cut,
        and of gaps raised to the least; how many sequences were left out, as nothing of them is observed; the waste.
    """

    data: dict[str, tuple[Events, ...]]
    classes: LengthClasses
    num_marks: int
    statistics: GapStatistics
    facts: dict[str, Any]


def load(settings: EventData, data_dir: str | None) -> EventSets:
    """The sequences that `settings` names, from the folder `data_dir`.

    Raises:
      ConfigError: an unknown name or unit, or a unit that the files cannot be told in.
      DataError: files that are missing or damaged, see event_sources.read_source; too few sequences to split.
    """
    source = choose(SOURCES, settings.name, "config.data.name")
    scale = unit_scale(source, settings.unit)
    read = read_source(source, data_dir)
    return event_sets(read, quoted(source, len(read.start), len(read.times)), scale, settings)


def unit_scale(source: Source, unit: str) -> float:
    """Units in a unit of the files. Raises ConfigError for an unknown unit, and where the files do not tell theirs."""
    choose({**UNITS, STORED: None}, unit, "config.data.unit")
    if unit == STORED:
        return 1.0
    if source.unit == STORED:
        raise ConfigError(f"config.data.unit: {source.quote} do not tell theirs: expected {STORED!r}, got {unit!r}")
    return UNITS[source.unit] / UNITS[unit]


def event_sets(read: Sequences, name: str, scale: float, settings: EventData) -> EventSets:
    """What `load` returns, of sequences in memory: their times are multiplied by `scale`."""
    every = [_observed(read, number, scale) for number in range(len(read.start))]
    kept = [one for one in every if len(one.gap) or one.rest]
    gaps = np.concatenate([one.gap for one in kept]) if kept else np.zeros(0)
    cut = [_finished(one, settings) for one in kept]
    splits = split(cut, settings.split_seed, name)
    lengths = {part: np.array([len(one.gap) for one in own]) for part, own in splits.items()}
    if not lengths["train"].sum():
        raise DataError(f"{name}: no events to train on")
    classes = length_classes([np.maximum(own, 1) for own in lengths.values()], settings.classes)
    data = {part: packed_classes(own, classes) for part, own in splits.items()}
    facts = {
        "data": name,
        "unit": settings.unit,
        "marks": read.num_marks,
        "split_seed": settings.split_seed,
        "sequences": {part: len(own) for part, own in lengths.items()},
        "events": {part: int(own.sum()) for part, own in lengths.items()},
        "first_event_is_start": float(np.isnan(read.start).mean()),
        "ends_at_last_event": float(np.isnan(read.end).mean()),
        "left_out_sequences": len(every) - len(kept),
        "raised_gaps": float((gaps < settings.least_gap).mean()) if len(gaps) else 0.0,
        "cut_sequences": float(np.mean([len(one.gap) > settings.max_events for one in kept])),
        "waste": classes.waste,
    }
    return EventSets(data, classes, read.num_marks, gap_statistics(*data["train"]), facts)


def gap_statistics(*batches: Events) -> GapStatistics:
    """Of the gaps of one or more batches of events, all above 0. Raises ValueError where there are no events."""
    gaps = np.concatenate([np.asarray(events.gap, float)[np.asarray(whole_mask(events))] for events in batches])
    if not len(gaps):
        raise ValueError("no events, so no statistics of gaps")
    std = float(np.log(gaps).std())
    return GapStatistics(float(gaps.mean()), float(np.log(gaps).mean()), std if std > _SAME else 1.0)


def split(sequences: Sequence[Any], seed: int, name: str) -> dict[str, list[Any]]:
    """Sequences shuffled by `seed` in SHARES. Raises DataError for fewer than it takes that none is empty."""
    count = len(sequences)
    held = [int(share * count) for share in SHARES.values()]
    held[-1] = count - sum(held[:-1])
    if not all(held):
        raise DataError(f"{name}: {count} sequences are too few for training, validation and test")
    order = np.random.default_rng(seed).permutation(count)
    parts = np.split(order, np.cumsum(held)[:-1])
    return {part: [sequences[place] for place in own] for part, own in zip(SHARES, parts)}


def packed_classes(sequences: Sequence["Observed"], classes: LengthClasses) -> tuple[Events, ...]:
    """The sequences of each class in arrays of its slots, in their order."""
    members = classes.members(np.array([len(one.gap) for one in sequences]))
    return tuple(_stacked([sequences[place] for place in own], slots) for own, slots in zip(members, classes.classes))


class Observed(NamedTuple):
    """One sequence: gap float64 [n], mark int32 [n], and what was observed after the last event."""

    gap: np.ndarray
    mark: np.ndarray
    rest: float


def _observed(read: Sequences, number: int, scale: float) -> Observed:
    """A sequence from its start, or from its first event, to its end, or to its last event."""
    own = slice(*read.offsets[number : number + 2])
    times, marks, start, end = read.times[own], read.marks[own], read.start[number], read.end[number]
    if np.isnan(start):
        start, times, marks = times[0], times[1:], marks[1:]
    last = times[-1] if len(times) else start
    rest = 0.0 if np.isnan(end) else end - last
    return Observed(np.diff(times, prepend=start) * scale, marks, float(rest * scale))


def _finished(one: Observed, settings: EventData) -> Observed:
    """A sequence with no gap below the least and no more events than the most."""
    most = settings.max_events
    rest = one.rest if len(one.gap) <= most else 0.0
    return Observed(np.maximum(one.gap[:most], settings.least_gap), one.mark[:most], rest)


def _stacked(sequences: Sequence[Observed], slots: int) -> Events:
    gap = np.zeros((len(sequences), slots), np.float32)
    mark = np.zeros((len(sequences), slots), np.int32)
    lengths = np.array([len(one.gap) for one in sequences])
    mask = np.arange(slots) < lengths[:, None]
    gap[mask] = np.concatenate([one.gap for one in sequences])
    mark[mask] = np.concatenate([one.mark for one in sequences])
    return Events(gap, mark, mask, np.float32([one.rest for one in sequences]))
