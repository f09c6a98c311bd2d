"""The failures a user can mend. The command line prints each as one line and leaves with its exit code."""


class UserError(Exception):
    """Bad input: a config, a file, a folder. Nothing has been written when it is raised."""

    exit_code = 2


class ConfigError(UserError):
    """A config key, value or section that is unknown, missing, mistyped or out of range."""


class Diverged(Exception):
    """A loss stopped being finite. The last good checkpoint is still there."""

    exit_code = 3
