"""Tables in their four forms."""

import csv
import io
import math

import pytest
from rich.console import Console

from experiments.harness.errors import ConfigError
from experiments.harness.tables import Cell, Table, mark_best, measured, median, over_seeds, render

TABLE = Table(
    "MSE & more",
    ["model", "1", "50"],
    [("Intention", [Cell(0.12345, 0.004, best=True), Cell(2.0)]), ("MAML", [Cell(), "(curve)"])],
    "100% ours",
    facts={"preset": "quick", "seeds": "1", "n": "1000"},
)


def test_markdown():
    assert render(TABLE, "md", "paper/table1").splitlines() == [
        "**MSE & more**",
        "",
        "| model | 1 | 50 |",
        "| --- | ---: | ---: |",
        "| Intention | **0.123 ± 0.004** | 2 |",
        "| MAML | missing | (curve) |",
        "",
        "100% ours",
    ]


def test_a_row_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="row 'MAML' has 3 cells for 2 columns"):
        Table("", ["model", "1", "50"], [("MAML", ["", "", ""])], "")


def test_latex_escapes_and_marks():
    text = render(TABLE, "tex", "paper/table1")
    assert r"Intention & \textbf{0.123 $\pm$ 0.004} & 2 \\" in text
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    assert lines[2:5] == [r"\caption{MSE \& more. 100\% ours}", r"\label{tab:paper:table1}", r"\begin{tabular}{lrr}"]
    assert [lines.index(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [5, 7, 10]


def test_latex_writes_powers_of_ten():
    table = Table("", ["model", "a", "b"], [("x", [Cell(-2.3e-5, 6e-6), Cell(2e-7)])], "")
    assert r"x & (-2.3 $\pm$ 0.6) $\times 10^{-5}$ & 2 $\times 10^{-7}$ \\" in render(table, "tex", "paper/table1")


def test_latex_is_ascii_and_escapes_each_symbol_once():
    table = Table("σ ± {1}", ["a\\b", "> 2"], [("x^2 ~ y_1", ["#1"])], "p ≤ $5")
    text = render(table, "tex", "paper/table1")
    assert text.isascii()
    for piece in (
        r"$\sigma$ $\pm$ \{1\}",
        r"a\textbackslash{}b & $>$ 2",
        r"x\textasciicircum{}2",
        r"y\_1 & \#1",
        r"$\leq$ \$",
    ):
        assert piece in text


def test_csv_keeps_all_digits_and_the_facts():
    rows = list(csv.reader(io.StringIO(render(TABLE, "csv", "paper/table1"))))
    assert rows[0] == ["model", "1", "1 sem", "50", "preset", "seeds", "n"]  # no number under 50 has an error
    assert rows[1] == ["Intention", "0.12345", "0.004", "2.0", "quick", "1", "1000"]
    assert rows[2] == ["MAML", "missing", "", "(curve)", "quick", "1", "1000"]


@pytest.mark.parametrize(
    "cell, text",
    [
        (Cell(26.04, 0.4), "26.0 ± 0.4"),  # an error makes its zero significant
        (Cell(26.04), "26"),
        (Cell(4.47, 0.3), "4.5 ± 0.3"),
        (Cell(4.47, 0.134), "4.47 ± 0.13"),  # two digits of an error that begins with 1
        (Cell(4.47, 0.0996), "4.47 ± 0.10"),
        (Cell(2.29e-5, 0.06), "0.00 ± 0.06"),
        (Cell(-2.29e-5, 0.06), "0.00 ± 0.06"),
        (Cell(100.2, 12.3), "100 ± 12"),
        (Cell(1234.5, 20.0), "1234 ± 20"),
        (Cell(999.7, 1.2), "999.7 ± 1.2"),
        (Cell(0.0, 0.0), "0 ± 0"),
        (Cell(124.369303, 6e-6), "124 ± 0"),  # one number, summed in several orders
        (Cell(-2.3e-5, 6e-6), "(-2.3 ± 0.6)e-05"),
        (Cell(4.49e-4, 1.2e-5), "(4.49 ± 0.12)e-04"),
        (Cell(5.148e13, 2.577e13), "(5 ± 3)e+13"),
        (Cell(5.148e13), "5.15e+13"),
        (Cell(94.0, decimals=1), "94.0"),
        (Cell(60.1, 0.51, decimals=2), "60.10 ± 0.51"),
        (Cell(), "missing"),
        (Cell(math.nan, 0.1), "not finite"),
    ],
)
def test_digits(cell, text):
    assert cell.text() == text


def test_what_is_not_finite_is_neither_missing_nor_best():
    summary = {"mean": None, "sem": None, "median": 2.0}  # as result.json has a mean that is not finite
    cells = [measured(summary), measured(None), measured({"mean": 0.5, "sem": 0.01}, scale=100, errors=2)]
    assert [cell.text() for cell in cells] == ["not finite", "missing", "50 ± 2"]
    assert median(summary).text() == "2" and median(None).text() == "missing"
    assert [cell.best for cell in mark_best(cells)] == [False, False, True]
    text = render(Table("", ["model", "a"], [("x", [cells[0]]), ("y", [cells[2]])], ""), "csv", "paper/table1")
    assert text == "model,a,a sem\nx,not finite,\ny,50.0,2.0\n"


def test_errors_over_seeds():
    summary = dict(mean=3.0, sem=0.1, median=3.0, n=5)
    assert over_seeds(summary | dict(seeds=[2.0, 4.0])) == Cell(3.0, 2**0.5)
    assert over_seeds(summary | dict(seeds=[3.0])) == Cell(3.0) and over_seeds(None) == Cell()
    assert over_seeds(summary | dict(mean=None, seeds=[3.0, None])).text() == "not finite"


def test_terminal():
    console = Console(width=100, file=io.StringIO())
    console.print(TABLE.terminal())
    shown = console.file.getvalue()
    assert "0.123" in shown and "± 0.004" in shown and "missing" in shown and "100% ours" in shown


def test_unknown_format():
    with pytest.raises(ConfigError, match="unknown --format 'html'"):
        render(TABLE, "html", "paper/table1")


def test_best_includes_those_within_the_joint_error():
    column = [Cell(1.0, 0.3), Cell(1.4, 0.3), Cell(2.0, 0.3), Cell()]
    assert [cell.best for cell in mark_best(column)] == [True, True, False, False]
    assert [cell.best for cell in mark_best(column, smaller_is_better=False)] == [False, False, True, False]
    shown = [Cell(mean, spread) for mean, spread in ((1.0, 9.0), (1.1, None), (5.0, 9.0), (None, None))]
    marked = mark_best(shown, judged=column)
    assert [cell.best for cell in marked] == [True, True, False, False] and marked == [
        Cell(cell.mean, cell.error, best) for cell, best in zip(shown, (True, True, False, False))
    ]
