"""How a process ends before its work is done: by a signal, or with the process that started it."""

import atexit
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from experiments.harness.errors import Stopped

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PARENT = "KVQ_JAX_PARENT"  # the process to end with
_LOOK_EVERY_S, _AGAIN_S, _PATIENCE_S = 0.5, 0.01, 10.0


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM raise Stopped, once: a second signal ends the process as it would any other.

    A signal that comes amid a callback of the garbage collector, which lets no error out, comes again.
    """

    def stop(number, frame):
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)

    def again(unraisable):
        if not isinstance(unraisable.exc_value, Stopped):
            return hook(unraisable)
        for each in _SIGNALS:
            signal.signal(each, stop)
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), unraisable.exc_value.number)).start()

    hook = sys.unraisablehook
    with _heard_by(stop):
        sys.unraisablehook = again
        try:
            yield
        finally:
            sys.unraisablehook = hook


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM wait for its end: for what should not be left half done. A second one does not."""
    came = []

    def wait(number, frame):
        came.append(number)
        if len(came) > 1:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    try:
        with _heard_by(wait):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def _heard_by(handler: Callable) -> Iterator[None]:
    """Within it `handler` hears the signals, where this is the main thread: no other hears any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def leave_at_exit(code: int) -> None:
    """Lets the process end with `code` where Python would begin to take itself down, which aborts threads of JAX."""

    def leave():
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)

    atexit.register(leave)


def environment_of_children() -> dict[str, str]:
    """The environment of processes that shall not outlive this one."""
    return os.environ | {_PARENT: str(os.getpid())}


def end(process: subprocess.Popen) -> None:
    """Ends a process that was started here: it is asked first."""
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:  # a compilation hears no signal
        process.kill()


def end_with_parent() -> None:
    """Ends this process soon after the one that gave it its environment by `environment_of_children`, if any."""
    parent = os.environ.get(_PARENT)
    if parent is None:
        return

    def watch():
        while os.getppid() == int(parent):
            time.sleep(_LOOK_EVERY_S)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_PATIENCE_S)  # a compilation hears no signal
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def same_command(argv: Sequence[str]) -> str:
    """What to type to go on where this process was stopped: its command, without --restart."""
    spec = sys.modules["__main__"].__spec__
    program = ["python", "-m", spec.name.removesuffix(".__main__")] if spec else [argv[0]]
    kept = [argument for argument in argv[1:] if argument.lstrip("-").partition("=")[0] != "restart"]
    return shlex.join([*program, *kept])
