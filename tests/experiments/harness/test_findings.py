"""Sentences whose numbers are read from tables."""

import dataclasses
from types import SimpleNamespace

import pytest

from experiments.harness.findings import Finding, Numbers, Unsaid, digits, listed, said
from experiments.harness.tables import Cell, Table

TABLE = Table(
    "Errors", ["model", "one", "two"], [("A", [Cell(0.5, best=True), "none"]), ("B", [Cell(0.7), Cell()])], ""
)
STEPS = {"A": 4000, "B": 600, "C": 4000}


def test_numbers_are_found_by_row_and_column():
    number = Numbers(lambda results: TABLE, [])
    assert (
        number("B", "one") == 0.7
        and number.cell("A", "two") == "none"
        and number.columns == ["one", "two"]
        and number.rows == ["A", "B"]
    )
    assert number.known(["A", "B"], "one") == {"A": 0.5, "B": 0.7} and number.known(["A", "B"], "two") == {}
    for row in "AB":
        with pytest.raises(Unsaid, match=f"Errors: {row}, two is missing"):
            number(row, "two")
    for row, column in (("A", "three"), ("C", "one")):
        with pytest.raises(Unsaid, match=f"Errors has no {row}, {column}"):
            number(row, column)
    with pytest.raises(Unsaid, match="no result of the table"):
        Numbers(lambda results: None, [])


def test_steps_are_a_range_where_runs_differ():
    cells = {name: Cell(0.5, run=SimpleNamespace(content={"steps": steps})) for name, steps in STEPS.items()}
    number = Numbers(lambda results: Table("", ["model", "one"], [(name, [cells[name]]) for name in cells], ""), [])
    assert number.steps("ABC", "one") == "600 to 4000"
    assert number.steps("AC", "one") == "4000"


def test_best_is_best_alone():
    both = dataclasses.replace(TABLE, rows=[(name, [Cell(1.0, best=True), ""]) for name in "AB"])
    assert Numbers(lambda results: TABLE, []).best("A", "one", "AB")
    assert not Numbers(lambda results: TABLE, []).best("B", "one", "AB")
    assert not Numbers(lambda results: both, []).best("A", "one", "AB")
    assert Numbers(lambda results: both, []).best("A", "one", "A")


def test_no_better_is_worse_or_within_the_joint_error():
    cells = {"base": Cell(1.0, 0.3), "far above": Cell(2.0, 0.4), "above": Cell(1.4, 0.4), "below": Cell(0.1, 0.1)}
    rows = [*((name, [cell]) for name, cell in cells.items()), ("none", ["missing"])]
    table = Table("Errors", ["row", "one"], rows, "")
    number = Numbers(lambda results: table, [])
    assert number.no_better("base", "one") == ["above", "below"]
    assert number.no_better("base", "one", smaller=True) == ["above", "far above"]
    with pytest.raises(Unsaid, match="none, one is missing"):
        number.no_better("none", "one")


def test_what_can_be_said_is_said_up_to_the_first_missing_number():
    def find(results):
        yield Finding("first")
        yield Finding(f"second {Numbers(lambda results: TABLE, results)('B', 'two')}")

    assert said(find, []) == ([Finding("first", True)], "Errors: B, two is missing")
    assert said(lambda results: iter([Finding("only", False)]), []) == ([Finding("only", False)], None)


@pytest.mark.parametrize(
    "number, significant, text",
    [(0.00127, 2, "0.0013"), (0.0996, 2, "0.10"), (9.96, 2, "10"), (12.34, 2, "12"), (12.34, 3, "12.3")]
    + [(-0.448, 2, "-0.45"), (1.2, 2, "1.2"), (1234, 2, "1234"), (0.0, 2, "0")],
)
def test_digits_of_a_sentence(number, significant, text):
    assert digits(number, significant) == text


def test_lists_of_words():
    assert [listed(["a", "b", "c"][:count]) for count in range(4)] == ["none", "a", "a and b", "a, b and c"]


def test_a_ranking_begins_with_the_best():
    cells = {"a": Cell(1.0, 0.3), "b": Cell(2.0, 0.1), "c": Cell(0.5, 0.4), "d": Cell()}
    number = Numbers(lambda results: Table("", ["model", "one"], [(name, [cells[name]]) for name in cells], ""), [])
    alike = ", c within the joint error of it"
    assert number.ranking("a", "one", "abcd") == f"b 2.0, a 1.0 and c 0.50; a is number 2 of 3{alike}"
    assert number.ranking("b", "one", "cb", smaller=True) == "c 0.50 and b 2.0; b is number 2 of 2"
    with pytest.raises(Unsaid):
        number.ranking("d", "one", "abcd")
