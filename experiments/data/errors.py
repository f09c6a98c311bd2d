"""The error of this package: a problem with the data that the user can fix."""

from experiments.harness.errors import UserError


class DataError(UserError):
    """One clear line that names the file, folder or name at fault."""
