"""What the value of a field may be, declared beside it: `hidden: Count = 64`.

A declaration is a type with a domain, typing.Annotated[type, domain]. It changes nothing in a class that is called
from Python; who fills fields from text, such as a config, asks `checked`.
"""

import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple


class Within(NamedTuple):
    """Numbers from `least` to `most`; without the ends where they are `above` the one or `below` the other."""

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False

    def __contains__(self, number: float) -> bool:
        low = self.least < number if self.above else self.least <= number
        return low and (number < self.most if self.below else number <= self.most)

    def __str__(self):
        low = f"{'above' if self.above else 'at least'} {self.least:g}"
        return low if self.most == math.inf else f"{low} and {'below' if self.below else 'at most'} {self.most:.10g}"


class _Increasing:
    def __contains__(self, numbers: Sequence[float]) -> bool:
        return list(numbers) == sorted(set(numbers))

    def __str__(self):
        return "increasing"


class _Range:
    def __contains__(self, numbers: Sequence[float]) -> bool:
        return numbers[0] <= numbers[1]

    def __str__(self):
        return "the lowest before the highest"


Count = Annotated[int, Within(1)]
Natural = Annotated[int, Within(0)]
Depth = Annotated[int, Within(0, 256)]  # layers, or steps, that are traced one by one
Seed = Annotated[int, Within(0, 2**32 - 1)]  # what a key of JAX takes
Positive = Annotated[float, Within(0, above=True)]
NotNegative = Annotated[float, Within(0)]
Fraction = Annotated[float, Within(0, 1)]
Share = Annotated[float, Within(0, 1, above=True, below=True)]
Part = Annotated[float, Within(0, 1, below=True)]  # what is dropped, or remembered: never all of it
Increasing = Annotated[tuple[Natural, ...], _Increasing()]
Range = Annotated[tuple[float, float], _Range()]
PositiveRange = Annotated[tuple[Positive, Positive], _Range()]
NotNegativeRange = Annotated[tuple[NotNegative, NotNegative], _Range()]


def checked(value: Any, hint: Any) -> Any:
    """`value` where a field annotated `hint` may have it; an int stands for the float that it equals.

    Args:
      value: has tuples where a field has a sequence.
      hint: a declaration. Of types that are not int, float, bool, str, tuples of these or names of operators, nothing
        is asked.

    Raises:
      ValueError: another type, length or number, NaN and infinity among them; the message says what was expected.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind, *domains = arguments
        value = checked(value, kind)
        for domain in domains:
            if value not in domain:
                raise ValueError(f"expected {_named(kind)}, {domain}, got {value!r}")
        return value
    if origin is Literal and value not in arguments:
        raise ValueError(f"expected {' or '.join(map(repr, arguments))}, got {value!r}")
    if origin in (tuple, Sequence):
        return _tuple(value, origin, arguments)
    if origin in (types.UnionType, typing.Union):
        return _one_of(value, arguments)
    if hint is float and type(value) is int:
        value = float(value)
    if hint in (int, float, str, bool, type(None)) and type(value) is not hint:
        raise ValueError(f"expected {_named(hint)}, got {value!r}")
    if hint is float and not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {value!r}")
    return value


def _tuple(value: Any, origin: type, kinds: tuple) -> tuple:
    if not isinstance(value, tuple):
        raise ValueError(f"expected {_named(tuple)}, got {value!r}")
    any_length = origin is Sequence or Ellipsis in kinds
    kinds = kinds[:1] * len(value) if any_length else kinds
    if len(kinds) != len(value):
        raise ValueError(f"expected {len(kinds)} values, got {value!r}")
    try:
        return tuple(map(checked, value, kinds))
    except ValueError as error:
        raise ValueError(f"{error} in {value!r}") from error


def _one_of(value: Any, kinds: tuple) -> Any:
    """A value of one of several types. Where a name may stand, so may a section with a name and options."""
    origins = {typing.get_origin(kind) or kind for kind in kinds}
    if {str, Mapping} <= origins:  # of an operator; from Python it can be a function
        if not isinstance(value, tuple({str, Mapping, type(None)} & origins)):
            raise ValueError(f"expected a name, or a section with a name and options, got {value!r}")
        return value
    wanted = []
    for kind in kinds:
        try:
            return checked(value, kind)
        except ValueError as error:
            wanted.append(str(error).removeprefix("expected ").rpartition(", got ")[0])
    raise ValueError(f"expected {', or '.join(wanted)}, got {value!r}")


def _named(kind: Any) -> str:
    """The name of a type in a message."""
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))
