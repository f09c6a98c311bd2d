"""The error of this package: a problem with the data that the user can fix."""

from experiments.harness.errors import UserError


class DataError(UserError):
    """One clear line that names the file, folder or name at fault."""


def first_line(error: Exception) -> str:
    """The first line of another library's error; the name of its class where it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
