"""Runs of the small experiment of conftest.py, as a user launches them."""

import io

from rich.console import Console

from experiments.harness.launch import Options, launch


def run(config, path, **options):
    """The result of a run in the folder `path`, and what it said."""
    console = Console(file=io.StringIO(), width=300)
    draw = lambda result, folder, console: (folder / "figure.png").write_bytes(b"drawn")
    return launch(config, path, Options(**options), console, draw), console.file.getvalue()
