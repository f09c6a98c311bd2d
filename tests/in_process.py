"""Commands of the project in the process of the tests: what is refused early takes milliseconds.

The module runs as `python -m MODULE` runs it, with flags of its own: those of other modules are taken away meanwhile.
"""

import contextlib
import io
import os
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from unittest import mock

from absl import flags

from tests.processes import ROOT

# The flags of absl itself, and of libraries that were imported before; not those of commands that tests import.
_ABSL = frozenset(
    name
    for name in flags.FLAGS
    if not str(flags.FLAGS.find_module_defining_flag(name)).startswith(("experiments.", "scripts."))
)


def run(module: str, *arguments, **environment: str) -> subprocess.CompletedProcess:
    """What `python -m MODULE ARGUMENTS` returns and prints, in the root of the project."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    argv = [module, *map(str, arguments)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_flags())
        stack.enter_context(_not_imported(module))
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


@contextlib.contextmanager
def _without_flags() -> Iterator[None]:
    """Within it there are no flags but absl's; afterwards those that were there before."""
    own = {name: flags.FLAGS[name] for name in frozenset(flags.FLAGS) - _ABSL}
    _remove(own)
    flags.FLAGS.unparse_flags()
    try:
        yield
    finally:
        _remove(frozenset(flags.FLAGS) - _ABSL)
        for name, flag in own.items():
            if name not in flags.FLAGS:  # a short name comes with its long one
                flags.FLAGS[name] = flag


def _remove(names: Iterable[str]) -> None:
    for name in names:
        delattr(flags.FLAGS, name)


@contextlib.contextmanager
def _not_imported(module: str) -> Iterator[None]:
    """Within it a module counts as not imported, as for `python -m`."""
    before = sys.modules.pop(module, None)
    try:
        yield
    finally:
        if before is not None:
            sys.modules[module] = before
