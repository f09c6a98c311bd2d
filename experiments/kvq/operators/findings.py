"""What the results of KVQ space at work say: where which operator helps."""

import functools
from collections.abc import Iterable, Iterator, Sequence

from experiments.harness.findings import Finding, Numbers, digits, listed, no_better_than
from experiments.harness.results import Result, seeds_in
from experiments.harness.tables import within_error
from experiments.kvq.operators.tables import COLUMNS, TABLES

_GEOMETRIC = ("policy_distillation", "kabsch")


def operators(results: Sequence[Result]) -> Iterator[Finding]:
    """Softmax attention beside Intention and the Informer, and where even a plain mean is better."""
    number = Numbers(TABLES["kvq/operators"], results)
    of = lambda op, experiment: number(op, COLUMNS[experiment].head)
    cell = lambda op, experiment: number.cell(op, COLUMNS[experiment].head)
    apart = lambda op, experiment: not within_error(cell(op, experiment), cell("softmax", experiment))
    smooth, seeds = ("sine", *_GEOMETRIC), functools.partial(_seeds, number)
    gains = {op: [of("softmax", name) / of(op, name) for name in smooth] for op in _INTENTION}
    sine, geometric = ([gain[index] for gain in gains.values() for index in which] for which in ((0,), (1, 2)))
    yield Finding(
        "In the attention model of each experiment, with nothing else changed, Intention and the Informer cut the "
        f"error of softmax by a factor of {digits(min(sine))} to {digits(max(sine))} on sine curves, and of "
        f"{digits(min(geometric))} and more on the two geometric tasks ({seeds('softmax', *gains, of=smooth)}).",
        min(sine) > 1 and min(geometric) > 100 and all(apart(op, name) for op in _INTENTION for name in smooth),
    )
    pixels = {op: 1 - of(op, "pixels") / of("softmax", "pixels") for op in _INTENTION}
    yield Finding(
        f"On pixels the error falls by {listed([f'{share:.0%} ({op})' for op, share in pixels.items()])}, by more than "
        f"the joint error of both ({seeds('softmax', *pixels, of=('pixels',))}).",
        min(pixels.values()) > 0 and all(apart(op, "pixels") for op in pixels),
    )
    anomaly = {op: of(op, "anomaly") for op in ("softmax", "uniform", *_INTENTION)}
    yield Finding(
        "With the scale of the experiment it is the other way round where a set has an anomaly to be found: "
        f"{listed([f'{op} finds {percent:.0f} %' for op, percent in anomaly.items()])} "
        f"({seeds(*anomaly, of=('anomaly',))}).",
        max(anomaly[op] for op in _INTENTION) < anomaly["softmax"] < anomaly["uniform"],
    )
    shots = {op: of(op, "few_shot_classification") for op in ("softmax", "linear", "informer", "intention")}
    way = cell("intention", "few_shot_classification").run.config["task"]["way"]
    told = listed([f"{op} is at {percent:.0f} %" for op, percent in shots.items()])
    yield Finding(
        f"In few-shot classification, with one scale and one start of the ridge for all, {told} (chance is "
        f"{100 / way:g}; {seeds(*shots, of=('few_shot_classification',))}).",
        list(shots.values()) == sorted(shots.values(), reverse=True),
    )


def smoothing(results: Sequence[Result]) -> Iterator[Finding]:
    """The operators in order, each with the scale that its theory asks for, beside what some had with the other."""
    number, own = (Numbers(TABLES[name], results) for name in ("kvq/smoothing", "kvq/operators"))
    for column in COLUMNS.values():
        found = number.known(number.rows, column.head)
        if {"softmax", *_INTENTION} <= found.keys():
            before = [f"{op} {digits(own(op, column.head))}" for op in ("softmax", *_INTENTION)]
            yield Finding(
                "With the scale that the theory of each operator asks for, and the start of the least validation loss "
                f"of those that were run, {column.head}: "
                f"{number.ranking('intention', column.head, found, column.smaller_is_better)}. With "
                f"the scale of the experiment, the same for all: {listed(before)}."
            )
            if "uniform" in found:
                yield no_better_than(number, "uniform", "a plain mean (uniform)", column.head, column.smaller_is_better)


def _seeds(number: Numbers, *ops: str, of: Iterable[str]) -> str:
    """'3 seeds': those of the runs of operators in the experiments `of`."""
    return seeds_in(number.cell(op, COLUMNS[experiment].head).run for op in ops for experiment in of)


_INTENTION = ("intention", "informer")
FINDINGS = {"kvq/operators": operators, "kvq/smoothing": smoothing}
