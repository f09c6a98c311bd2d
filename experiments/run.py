"""Runs one cell of a table: python -m experiments.run --config configs/<paper>/<experiment>.py:axis=value,...

    python -m experiments.run --config ... --show     # prints the whole config and its hash; runs nothing
    python -m experiments.run --config ... --help     # lists every knob of the config, such as --config.train.steps=100

The cell is trained and evaluated, or measured; then its table is printed and its figure drawn. A killed run resumes
from its latest checkpoint that is whole; a finished run is left alone. Whatever ends a run early is one line on stderr.
Exit codes: 0 done, 1 an error that nobody foresaw (its traceback is in error.txt of the run folder, and --debug prints
it) or a full disk, 2 bad input (nothing is written), 3 the loss stopped being finite, 130 and 143 Ctrl-C and SIGTERM.
"""

import gc
import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # without words, while the libraries are imported
    gc.set_threshold(100_000)  # new objects: to look for garbage after every 700 is a tenth of a short run

from pathlib import Path  # noqa: E402

from absl import flags  # noqa: E402
from ml_collections import config_flags  # noqa: E402

_CONFIG = config_flags.DEFINE_config_file("config", help_string="config file, with axes: path.py:axis=value,...")
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "run folder; default runs/<paper>/<experiment>/<axes>-<overrides>-<hash of the config>"
)
_DATA_DIR = flags.DEFINE_string("data_dir", None, "folder of the original data archives, or of prepared TFDS data")
_RESTART = flags.DEFINE_bool("restart", False, "start afresh; the old run folder is renamed, not deleted")
_TENSORBOARD = flags.DEFINE_bool("tensorboard", False, "also write TensorBoard event files (needs tensorboardX)")
_SHOW = flags.DEFINE_bool("show", False, "print the config with all overrides, and its hash; run nothing")
_WEIGHTS = flags.DEFINE_string(
    "weights", None, "folder of weights (scripts.import_weights) to evaluate in place of a training"
)


def main(argv: list[str]) -> int:
    """Runs the command line `argv` (argv[0] is the program's name) and returns its exit code."""
    from experiments.harness import command_line

    return command_line.guarded(_run, argv)


def _run(argv: list[str]) -> None:
    from experiments.harness import command_line, config_text, launch, placement
    from experiments.harness.run_directory import config_hash

    config = command_line.parse_config(argv, _CONFIG)
    if _SHOW.value:
        print("\n".join(config_text.tree(config)), f"\nhash: {config_hash(config)}", sep="\n")
        return
    from experiments import catalogue

    placement.initialize_hosts()
    given = command_line.overrides()
    options = launch.Options(_DATA_DIR.value, _RESTART.value, _TENSORBOARD.value, _WEIGHTS.value, given)
    path = Path(_WORKDIR.value) if _WORKDIR.value else None
    console = command_line.console(quiet=not placement.is_writer())
    launch.launch(config, path, options, console, catalogue.show)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
