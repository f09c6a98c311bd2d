"""What a person sees of a run: a bar on a terminal, plain lines in a file."""

import io
import re

import pytest
from rich.console import Console

from experiments.harness.progress import Reporter, duration, phase

ROW = {"loss": 0.25, "validation_loss": 0.5}


def shown(done, **options):
    console = Console(file=io.StringIO(), width=100, **options)
    with Reporter(console, steps=20, done=done) as reporter:
        if done < 20:
            reporter.update(20, ROW, 8.0)
    return console.file.getvalue()


def test_plain_lines():
    assert shown(0).splitlines() == ["compiling", "step 20/20  loss 0.25  validation 0.5  8 steps/s"]
    assert shown(20) == ""


def test_a_bar():
    """From the first picture, which knows no loss, to the last; a validation loss stays until the next."""
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    texts = []

    def drawn():
        reporter._bar.refresh()
        texts.append(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", console.file.getvalue()).splitlines()[-1])

    with Reporter(console, steps=20, done=0) as reporter:
        drawn()
        reporter.doing("validating")
        drawn()
        reporter.update(5, ROW, 0.25)
        drawn()
        reporter.update(10, {"loss": 0.125}, 0.0)
        drawn()
    pieces = ["compiling", "validating", "loss 0.25  validation 0.5  0.25 steps/s  1 min 0 s left", "validation 0.5"]
    assert all(piece in text for piece, text in zip(pieces, texts)), texts
    assert not any(word in text for text in texts for word in ("nan", "inf", "-:--"))
    assert "loss" not in texts[0] and "left" not in texts[3] and "10/20" in texts[3]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_phase(terminal):
    console = Console(file=io.StringIO(), width=60, force_terminal=terminal)
    with phase(console, "evaluating"):
        pass
    assert "evaluating" in console.file.getvalue() and ("0:00:00" in console.file.getvalue()) == terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_phase_of_parts(terminal, monkeypatch):
    clock = iter((0.0, 60.0, 100.0))
    monkeypatch.setattr("experiments.harness.progress.time.monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), width=60, force_terminal=terminal)
    with phase(console, "evaluating", 3) as part_done:
        for _ in range(3):
            part_done()
    lines = ["evaluating", "evaluating 1/3  2 min 0 s left", "evaluating 2/3  50 s left"]
    if terminal:
        assert lines[-1] in console.file.getvalue()
    else:
        assert console.file.getvalue().splitlines() == lines


def test_durations():
    texts = {0.2: "0 s", 59.6: "1 min 0 s", 125: "2 min 5 s", 3599.4: "59 min 59 s", 12_030: "3 h 20 min"}
    assert {seconds: duration(seconds) for seconds in texts} == texts
