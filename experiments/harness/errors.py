"""The failures a user can mend. The command line prints each as one line and leaves with its exit code."""

import signal


class UserError(Exception):
    """Bad input: a config, a file, a folder. Nothing has been written when it is raised."""

    exit_code = 2


class ConfigError(UserError):
    """A config key, value or section that is unknown, missing, mistyped or out of range."""


def first_line(error: BaseException) -> str:
    """The first line of another library's error; the name of its class where it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Stopped(BaseException):
    """A signal that ends the process: Ctrl-C or SIGTERM. No handler of Exception catches it."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number, self.exit_code = number, 128 + number


class Diverged(Exception):
    """A loss stopped being finite. The last good checkpoint is still there."""

    exit_code = 3
