"""What the commands share: flags to a config, failures to one line and an exit code, the compilation cache."""

import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

# The threads of SciPy's LAPACK, which JAX calls on a CPU, compete with JAX's own. SciPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
from absl import flags  # noqa: E402
from ml_collections import ConfigDict, config_flags  # noqa: E402
from rich.console import Console  # noqa: E402

from experiments.harness import config_text  # noqa: E402
from experiments.harness.errors import ConfigError, Diverged, UserError  # noqa: E402
from kvq_jax.names import unknown  # noqa: E402

_HELP = {"--help", "-h"}
_WIDTH = 200  # of tables where there is no terminal


def console(quiet: bool = False) -> Console:
    """Standard output: as wide as the terminal, or wide enough for tables in a file."""
    made = Console(quiet=quiet)
    return made if made.is_terminal else Console(quiet=quiet, width=_WIDTH)


def guarded(command: Callable[[list[str]], None], argv: list[str], cache: bool = True) -> int:
    """Runs command(argv). A failure that the user can mend becomes one line on stderr; returns the exit code.

    With --help or -h it prints the docstring of the command's module, its flags and, if a config is given, every knob
    of that config.

    Args:
      command: what to run.
      argv: its arguments; argv[0] is the program's name.
      cache: keep compiled programs between processes.
    """
    sys.stdout.reconfigure(line_buffering=True)  # for whoever follows a log file
    try:
        if _HELP & set(argv):
            _print_help(sys.modules[command.__module__], [argument for argument in argv if argument not in _HELP])
            return 0
        if cache:
            enable_compilation_cache()
        command(argv)
    except (UserError, Diverged) as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    return 0


def parse_flags(argv: list[str]) -> None:
    """Parses absl flags and refuses other arguments.

    Raises:
      UserError: an unknown flag, a bad value, a config file that is missing or refuses its axes, an unknown config key.
    """
    given = _config_argument(argv)
    if given is not None and not (file := Path(given.partition(":")[0])).is_file():
        raise UserError(unknown("config file", str(file), map(str, sorted(Path("configs").glob("*/*.py")))))
    try:
        rest = flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        raise UserError(unknown("flag", f"--{error.flagname}", (f"--{name}" for name in flags.FLAGS))) from error
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(_unknown_key(argv, given) or f"config: {_told(error)}") from error
    if len(rest) > 1:
        raise UserError(f"unexpected argument {rest[1]!r}")


def parse_config(argv: list[str], holder: flags.FlagHolder) -> ConfigDict:
    """The config of --config in argv. Raises UserError as parse_flags does, and where --config is missing."""
    parse_flags(argv)
    if holder.value is None:
        raise UserError("--config is missing: --config configs/<paper>/<experiment>.py:axis=value,...")
    return holder.value


def enable_compilation_cache() -> None:
    """Keeps compiled programs between processes, in JAX_COMPILATION_CACHE_DIR or the user's cache folder."""
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if folder is None:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(caches / "kvq_jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _config_argument(argv: list[str]) -> str | None:
    """The value of --config in argv, None where it is not given."""
    for argument, following in zip(argv, (*argv[1:], None)):
        if argument.startswith("--config=") or (argument == "--config" and following is not None):
            return following if argument == "--config" else argument.removeprefix("--config=")
    return None


def _unknown_key(argv: list[str], given: str | None) -> str | None:
    """What is said of the first unknown --config.KEY=VALUE in argv; None without any, or if the config is bad itself.

    The flag parser has no config when it fails: it is made again, of `given`, the value of --config.
    """
    file, _, axes = (given or "").partition(":")
    changes = [argument for argument in argv if argument.startswith("--config.")]
    try:
        config = runpy.run_path(file)["get_config"](axes or None) if changes else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    for argument in changes:
        section, where = config, "config"
        for part in re.split(r"[=\[]", argument.removeprefix("--config."))[0].split("."):
            if not isinstance(section, ConfigDict):
                return f"{where} is no section: it has no {part!r}"
            if part not in section:
                return unknown(f"key of {where}", part, section)
            section, where = section[part], f"{where}.{part}"
    return None


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


def _told(error: Exception) -> str:
    """The message of an error of the flag parser, without a config file's traceback and the whole argument."""
    told = re.sub(r"Error whilst parsing config file:\s+Traceback .*\n\w+: ", "", str(error).rstrip(), flags=re.DOTALL)
    return re.sub(r"^flag --config=\S+: ", "", told)
