"""Looking a name up in a table, with an error that helps."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


def choose(table: Mapping[str, Entry], name: str, what: str) -> Entry:
    """The entry `name` of `table`; `what` says in the error what kind of thing is named.

    Raises ValueError, one line, with the nearest known name first and then all of them.
    """
    if name in table:
        return table[name]
    nearest = difflib.get_close_matches(str(name), table, n=1, cutoff=0.4)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"unknown {what} {name!r}.{hint} Known: {', '.join(table)}")
