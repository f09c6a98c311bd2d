"""Looking a name up, with an error that helps."""

import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import TypeVar

Entry = TypeVar("Entry")
_MANY, _VERY_NEAR = 8, 0.7


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """One line: "unknown op 'intension': did you mean 'intention'? known: softmax, linear, intention".

    `what` says what kind of thing is named. Near are names of few changes, and those whose words begin with its letters
    ('lr': 'learning_rate'). Without one there is no question: "unknown op 'x'; known: ...". With one that is very near,
    a list of many is left out.
    """
    known = list(known)
    initials = [entry for entry in known if "".join(word[:1] for word in entry.split("_")) == name]
    near = functools.partial(difflib.get_close_matches, str(name), known, n=1)
    nearest = initials or near(cutoff=0.4)
    hint = f": did you mean {nearest[0]!r}?" if nearest else ";"
    listed = len(known) <= _MANY or not (initials or near(cutoff=_VERY_NEAR))
    return f"unknown {what} {name!r}{hint}" + f" known: {', '.join(known) or 'none'}" * listed


def choose(table: Mapping[str, Entry], name: str, what: str, error: type[Exception] = ValueError) -> Entry:
    """The entry `name` of `table`.

    Raises:
        error: if there is none: see `unknown`.
    """
    if name not in table:
        raise error(unknown(what, name, table))
    return table[name]
