"""Scripts run as a user runs them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments, code: int = 0) -> str:
    """Runs a script and returns its standard output, or its one line on standard error where `code` is not 0."""
    command = [sys.executable, "-m", f"scripts.{script}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (done.stdout, done.stderr)
    if code:
        assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr if code else done.stdout
