"""The one error of this package: something about the data that the user can put right."""

from experiments.harness.errors import UserError


class DataError(UserError):
    """One clear line that names the file, folder or name at fault."""


def first_line(error: Exception) -> str:
    """What a foreign error says, in one line; the name of its class where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
