"""Commands of the project in the process of the tests: what is refused early takes milliseconds.

The module runs as `python -m MODULE` runs it, with flags of its own: those that another module left are taken away.
"""

import contextlib
import io
import os
import runpy
import subprocess
import sys
from unittest import mock

from absl import flags

from tests.processes import ROOT

_ABSL = frozenset(flags.FLAGS)  # the flags of absl itself, and of libraries that were imported before


def run(module: str, *arguments, **environment: str) -> subprocess.CompletedProcess:
    """What `python -m MODULE ARGUMENTS` returns and prints, in the root of the project."""
    for name in frozenset(flags.FLAGS) - _ABSL:
        delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    argv = [module, *map(str, arguments)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(ROOT))
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(mock.patch.object(sys, "argv", argv))
        stack.enter_context(contextlib.redirect_stdout(streams[0]))
        stack.enter_context(contextlib.redirect_stderr(streams[1]))
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as left:
            code = left.code
    told = []
    for stream in streams:
        stream.flush()
        told.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(argv, code, *told)
