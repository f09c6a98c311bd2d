"""The failures a user can mend. The command line prints each as one line and leaves with its exit code."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input: a config, a file, a folder. Nothing has been written when it is raised."""

    exit_code = 2


class ConfigError(UserError):
    """A config key, value or section that is unknown, missing, mistyped or out of range."""


class Diverged(Exception):
    """A loss stopped being finite. The last good checkpoint is still there."""

    exit_code = 3


def unknown(kind: str, given: str, known: Iterable[str]) -> str:
    """The message about a name outside the `known` ones: it lists them, the nearest first where one is near."""
    known = sorted(map(str, known))
    close = difflib.get_close_matches(str(given), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {given!r}: {hint}known: {', '.join(known)}"
