"""What may be the value of a field, by its declaration."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest

from kvq_jax.domains import (
    Count,
    Depth,
    Fraction,
    Increasing,
    Natural,
    Part,
    Positive,
    PositiveRange,
    Range,
    Seed,
    Share,
    checked,
)

OP = str | Mapping[str, Any] | Callable


@pytest.mark.parametrize(
    "hint, good, bad",
    [
        (Count, [1, 10**9], [0, -1, 1.0, True, "1", None]),
        (Natural, [0], [-1]),
        (Depth, [0, 256], [257]),
        (Seed, [0, 2**32 - 1], [-1, 2**32]),
        (float, [0.0, -3.5], [float("nan"), float("inf"), "1"]),
        (Positive, [1e-30], [0.0, -1.0, float("nan")]),
        (Fraction, [0.0, 1.0], [1.0001, -0.1]),
        (Share, [0.5], [0.0, 1.0]),
        (Part, [0.0, 0.999], [1.0, -0.1]),
        (Increasing, [(), (3,), (0, 5)], [(5, 3), (3, 3), (-1,), (0.5,), 3]),
        (Range, [(-1.0, 2.0), (1.0, 1.0)], [(2.0, 1.0), (1.0,), (1.0, 2.0, 3.0), ("a", "b")]),
        (PositiveRange, [(0.1, 0.2)], [(0.0, 1.0)]),
        (tuple[Count, ...], [(), (1, 2)], [(1, 0)]),
        (Sequence[Count], [(4,)], [(0,), 4]),
        (tuple[tuple[float, float], ...], [((1.0, 2.0),)], [((1.0,),)]),
        (Literal["last", "best"], ["last"], ["worst", 1]),
        (bool | int, [True, 3], ["a", 1.5]),
        (float | str, [0.5, "variance"], [None, (1.0,)]),
        (Count | None, [None, 2], [0]),
        (OP | None, ["softmax", {"name": "linear"}, None], [3]),
        (OP, ["softmax"], [None, 3]),
        (tuple, [(1, "a")], []),
    ],
)
def test_declarations(hint, good, bad):
    for value in good:
        assert checked(value, hint) == value
    for value in bad:
        with pytest.raises(ValueError, match="expected"):
            checked(value, hint)


def test_an_int_becomes_the_float_that_it_equals():
    found = checked((1, 2), PositiveRange)
    assert found == (1.0, 2.0) and all(type(number) is float for number in found)


@pytest.mark.parametrize(
    "hint, value, message",
    [
        (Count, 0, "expected int, at least 1, got 0"),
        (Positive, 0.0, "expected float, above 0, got 0.0"),
        (Part, 1.0, "expected float, at least 0 and below 1, got 1.0"),
        (Seed, -1, "expected int, at least 0 and at most 4294967295, got -1"),
        (Range, (1.0,), r"expected 2 values, got \(1.0,\)"),
        (Sequence[Count], (4, 0), r"expected int, at least 1, got 0 in \(4, 0\)"),
        (Count | None, 0, "expected int, at least 1, or None, got 0"),
        (float | str, None, "expected float, or str, got None"),
    ],
)
def test_messages(hint, value, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        checked(value, hint)
