"""What the commands share: flags to a config, failures to one line and an exit code, the compilation cache."""

import ast
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# The threads of SciPy's LAPACK, which JAX calls on a CPU, compete with JAX's own. SciPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
from absl import flags  # noqa: E402
from ml_collections import ConfigDict, config_flags  # noqa: E402
from rich.console import Console  # noqa: E402

from experiments.harness import config_files, config_text, ending  # noqa: E402
from experiments.harness.errors import ConfigError, Diverged, Stopped, UserError, first_line  # noqa: E402
from kvq_jax.names import unknown  # noqa: E402

_HELP, _DEBUG = {"--help", "-h"}, "--debug"
# Type of a config's value -> what a flag for it gives, and what reads that.
_EXPECTED = {
    int: ("a whole number", int),
    float: ("a number", float),
    ConfigDict: ("a section, such as \"{'name': 'softmax'}\"", lambda text: dict(ast.literal_eval(text))),
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NO_DEVICE = "Unable to initialize backend"  # begins what JAX says of a platform that is unknown or not there
_LONGEST, _LONGEST_NAME = 1000, 200  # characters of a line, and of a file name in it
_WIDTH = 200  # of tables where there is no terminal


def console(quiet: bool = False) -> Console:
    """Standard output: as wide as the terminal, or wide enough for tables in a file."""
    made = Console(quiet=quiet)
    return made if made.is_terminal else Console(quiet=quiet, width=_WIDTH)


def guarded(command: Callable[[list[str]], None], argv: list[str], cache: bool = True) -> int:
    """Runs command(argv) and returns the exit code. Whatever ends it early is one line on stderr.

    0 done; 1 an error that nobody foresaw, or a full disk; 2 bad input; 3 a loss that stopped being finite; 130 and 143
    Ctrl-C and SIGTERM. With --debug, errors print their traceback too. With --help or -h it prints the docstring of the
    command's module, its flags and, if a config is given, every knob of that config.

    Args:
      command: what to run.
      argv: its arguments; argv[0] is the program's name.
      cache: keep compiled programs between processes.
    """
    _open_streams()
    debug, argv = _DEBUG in argv, [argument for argument in argv if argument != _DEBUG]
    try:
        with ending.stoppable():
            ending.end_with_parent()
            if _HELP & set(argv):
                _print_help(sys.modules[command.__module__], [argument for argument in argv if argument not in _HELP])
                return 0
            _fix_numbers()
            if cache:
                enable_compilation_cache()
            command(argv)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has left: nobody is there to be told
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, Stopped) as error:
        if debug:
            traceback.print_exception(error)
        told, code = ending_of(error, argv)
        print(f"error: {' '.join(told.split())[:_LONGEST]}", file=sys.stderr)
        if isinstance(error, Stopped) or jax.distributed.is_initialized():  # the others may wait for this process
            ending.leave_at_exit(code)
        return code
    return 0


def ending_of(error: BaseException, argv: list[str]) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    if isinstance(error, Stopped):
        return f"stopped by {error}; this goes on: {ending.same_command(argv)}", error.exit_code
    if isinstance(error, (UserError, Diverged)):
        return f"{error}{notes}", error.exit_code
    if is_full_disk(error):
        return f"{error.strerror}: make room, then {ending.same_command(argv)}{notes}", 1
    if isinstance(error, OSError) and error.filename is not None:
        return f"{str(error.filename)[:_LONGEST_NAME]}: {error.strerror}{notes}", UserError.exit_code
    if isinstance(error, RuntimeError) and str(error).startswith(_NO_DEVICE):
        return f"JAX_PLATFORMS: {first_line(error)}", UserError.exit_code
    return f"{type(error).__name__}: {first_line(error)}{notes or f' ({_DEBUG} shows where)'}", 1


def is_full_disk(error: BaseException) -> bool:
    """Whether an error says that nothing more can be written: it is over once there is room."""
    return isinstance(error, OSError) and error.errno in _FULL


def _open_streams() -> None:
    """Standard streams that were closed take what is printed and lose it; lines appear as they are printed.

    What an encoding lacks, as ASCII the sign of plus or minus, is a question mark.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    sys.stdout.reconfigure(line_buffering=True, errors="replace")  # lines for whoever follows a log file


def parse_flags(argv: list[str]) -> None:
    """Parses absl flags and refuses other arguments.

    Raises:
      UserError: an unknown flag, a bad value, a config file that is missing or refuses its axes, an unknown config key.
    """
    given = _config_argument(argv)
    if given is not None and "config" in flags.FLAGS:
        file, _, axes = given.partition(":")
        _check_keys(argv, config_files.config_of(config_files.load(Path(file)), axes))
    try:
        rest = flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        raise UserError(unknown("flag", f"--{error.flagname}", (f"--{name}" for name in flags.FLAGS))) from error
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"config: {error}") from error
    if len(rest) > 1:
        raise UserError(f"unexpected argument {rest[1]!r}")


def parse_config(argv: list[str], holder: flags.FlagHolder) -> ConfigDict:
    """The config of --config in argv. Raises UserError as parse_flags does, and where --config is missing."""
    parse_flags(argv)
    if holder.value is None:
        raise UserError("--config is missing: --config configs/<paper>/<experiment>.py:axis=value,...")
    return holder.value


def overrides() -> dict[str, Any]:
    """Config key -> value, of the flags that were parsed: sections as dicts."""
    given = config_flags.get_override_values(flags.FLAGS["config"])
    return {key: config_files.plain(value) for key, value in given.items()}


def enable_compilation_cache() -> None:
    """Keeps compiled programs between processes, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if folder is None:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(caches / "kvq_jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _fix_numbers() -> None:
    """One config gives one set of numbers, whatever JAX's own environment variables ask for."""
    jax.config.update("jax_default_prng_impl", "threefry2x32")
    jax.config.update("jax_threefry_partitionable", True)
    jax.config.update("jax_enable_x64", False)


def _config_argument(argv: list[str]) -> str | None:
    """The value of --config in argv, None where it is not given."""
    for argument, following in zip(argv, (*argv[1:], None)):
        name, equals, value = argument.partition("=")
        if name in ("--config", "-config") and (equals or following is not None):
            return value if equals else following
    return None


def _check_keys(argv: list[str], config: ConfigDict) -> None:
    """Raises ConfigError for the first --config.KEY=VALUE in argv of an unknown key, or of a value of another type."""
    for argument in argv:
        if change := re.match(r"--?(?:no)?config\.([^=[]*)", argument):
            key = change[1]
            _check_value(argument.partition("="), config_files.type_of(config, key), f"config.{key}")


def _check_value(argument: tuple[str, str, str], kind: type, where: str) -> None:
    """Raises ConfigError for --config.KEY=VALUE where the config has a number or a section and VALUE is none."""
    _, equals, text = argument
    if kind not in _EXPECTED or not equals:
        return
    expected, parse = _EXPECTED[kind]
    try:
        parse(text)
    except (SyntaxError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: expected {expected}, got {text!r}") from error


def _print_help(module: ModuleType, argv: list[str]) -> None:
    """Prints a module's docstring and flags, and the docstring and knobs of a config in argv. Raises UserError."""
    print(module.__doc__.strip())
    own = flags.FLAGS.get_key_flags_for_module(module)
    if own:
        print("\nFlags:")
    for flag in own:
        default = f" (default: {flag.default_as_str[1:-1]})" if flag.default not in (None, "", []) else ""
        print(f"  --{flag.name}: {flag.help.splitlines()[0].rstrip(';')}{default}")
    if _config_argument(argv) is None:
        return
    parse_flags(argv)
    flag = flags.FLAGS["config"]
    name = config_flags.get_config_filename(flag)
    print(
        f"\n{name}:\n\n{config_text.docstring(Path(name.partition(':')[0]))}\n\nKnobs (--config.KEY=VALUE changes one):"
    )
    print("\n".join(f"  {line}" for line in config_text.knobs(flag.value)))
