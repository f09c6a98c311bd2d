"""Tables in their four forms."""
import csv
import io

import pytest
from rich.console import Console

from experiments.harness.errors import ConfigError
from experiments.harness.tables import Cell, Table, mark_best, render

TABLE = Table(
    "MSE & more",
    ["model", "1", "50"],
    [("Intention", [Cell(0.12345, 0.004, best=True), Cell(2.0)]), ("MAML", [Cell(), "(curve)"])],
    "100% ours",
)


def test_markdown():
    assert render(TABLE, "md").splitlines() == [
        "**MSE & more**",
        "",
        "| model | 1 | 50 |",
        "| --- | ---: | ---: |",
        "| Intention | **0.123 ± 0.004** | 2 |",
        "| MAML | missing | (curve) |",
        "",
        "100% ours",
    ]


def test_latex_escapes_and_marks():
    text = render(TABLE, "tex")
    assert r"Intention & \textbf{0.123 $\pm$ 0.004} & 2 \\" in text
    assert r"\caption{MSE \& more. 100\% ours}" in text and r"\begin{tabular}{lrr}" in text


def test_csv_keeps_all_digits():
    rows = list(csv.reader(io.StringIO(render(TABLE, "csv"))))
    assert rows[0] == ["model", "1", "1 sem", "50", "50 sem"]
    assert rows[1] == ["Intention", "0.12345", "0.004", "2.0", ""]
    assert rows[2] == ["MAML", "missing", "", "(curve)", ""]


def test_terminal():
    console = Console(width=100, file=io.StringIO())
    console.print(TABLE.terminal())
    shown = console.file.getvalue()
    assert "0.123" in shown and "± 0.004" in shown and "missing" in shown and "100% ours" in shown


def test_unknown_format():
    with pytest.raises(ConfigError, match="unknown --format 'html'"):
        render(TABLE, "html")


def test_best_includes_those_within_the_joint_error():
    column = [Cell(1.0, 0.3), Cell(1.4, 0.3), Cell(2.0, 0.3), Cell()]
    assert [cell.best for cell in mark_best(column)] == [True, True, False, False]
    assert [cell.best for cell in mark_best(column, smaller_is_better=False)] == [False, False, True, False]
