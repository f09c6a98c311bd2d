"""What the commands share: flags to a config, failures to one line and an exit code, the compilation cache."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

# The threads of SciPy's LAPACK, which JAX calls on a CPU, fight over the cores with JAX's own. Read when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax  # noqa: E402
from absl import flags  # noqa: E402
from ml_collections import ConfigDict  # noqa: E402

from experiments.harness.errors import ConfigError, Diverged, UserError, unknown  # noqa: E402


def guarded(command: Callable[[list[str]], None], argv: list[str], cache: bool = True) -> int:
    """Runs command(argv). A failure that the user can mend becomes one line on stderr; returns the exit code.

    Args:
      command: what to run.
      argv: its arguments; argv[0] is the program's name.
      cache: keep compiled programs between processes.
    """
    sys.stdout.reconfigure(line_buffering=True)  # whoever follows a log file wants its lines as they come
    if cache:
        enable_compilation_cache()
    try:
        command(argv)
    except (UserError, Diverged) as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    return 0


def parse_flags(argv: list[str]) -> None:
    """Parses absl flags, refusing what is left over.

    Raises:
      UserError: an unknown flag, a bad value, a config file that is missing or refuses its axes, an unknown config key.
    """
    for argument in argv[1:]:
        if argument.startswith("--config="):
            _check_config_file(argument.removeprefix("--config="))
    if "--config" in argv[:-1]:
        _check_config_file(argv[argv.index("--config") + 1])
    try:
        rest = flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        raise UserError(unknown("flag", f"--{error.flagname}", (f"--{name}" for name in flags.FLAGS))) from error
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"config: {_told(error)}") from error
    if len(rest) > 1:
        raise UserError(f"unexpected argument {rest[1]!r}")


def parse_config(argv: list[str], holder: flags.FlagHolder) -> ConfigDict:
    """The config that argv names in --config. Raises UserError as parse_flags does, and where --config is missing."""
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


def _check_config_file(value: str) -> None:
    path = Path(value.split(":")[0])
    if not path.is_file():
        raise UserError(unknown("config file", str(path), Path("configs").glob("*/*.py")))


def _told(error: Exception) -> str:
    """The message of an error of the flag parser: KeyError quotes its own, and the parser adds a line of advice."""
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error)
