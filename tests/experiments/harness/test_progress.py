"""What a person sees of a run: a bar on a terminal, plain lines in a file."""

import io

import pytest
from rich.console import Console

from experiments.harness.progress import Reporter

ROW = {"loss": 0.25, "validation_loss": 0.5}


def shown(done, **options):
    console = Console(file=io.StringIO(), width=100, **options)
    with Reporter(console, steps=20, done=done) as reporter:
        if done < 20:
            reporter.update(20, ROW, 8.0)
    return console.file.getvalue()


def test_plain_lines():
    assert shown(0).splitlines() == ["compiling", "step 20/20  loss 0.25  validation 0.5  8.0 steps/s  0 s left"]
    assert shown(20) == ""


@pytest.mark.parametrize("piece", ["compiling", "training", "20/20", "loss 0.25", "8.0 steps/s"])
def test_a_bar(piece):
    assert piece in shown(0, force_terminal=True)
