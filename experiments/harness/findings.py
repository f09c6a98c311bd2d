"""What results say, in sentences: every number in them is read from a table, and whether they hold is a computation.

A findings.py beside the tables.py of an experiment has FINDINGS, '<paper>/<name>' -> a function of results that yields
its findings in the order of reading.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from experiments.harness.errors import UserError
from experiments.harness.results import Result
from experiments.harness.tables import Cell, Table, within_error


@dataclasses.dataclass(frozen=True)
class Finding:
    """A sentence about results.

    Attributes:
      text: plain text, one or two sentences.
      holds: whether the results bear it out; a sentence that only reads numbers always does.
    """

    text: str
    holds: bool = True


Find = Callable[[Sequence[Result]], Iterator[Finding]]


class Unsaid(UserError):
    """A sentence needs a number that no result has."""


class Numbers:
    """The numbers of a table, by the name of a row and the head of a column."""

    def __init__(self, build: Callable[[Sequence[Result]], Table | None], results: Sequence[Result]):
        """Raises Unsaid where the results have nothing of the table."""
        self._table = build(results)
        if self._table is None:
            raise Unsaid("no result of the table that this is read from")

    def __call__(self, row: str, column: str) -> float:
        """A mean. Raises Unsaid where the cell is missing or not finite."""
        return self.measured(row, column).mean

    def measured(self, row: str, column: str) -> Cell:
        """A cell with a finite number. Raises Unsaid where it is missing or not finite."""
        cell = self.cell(row, column)
        if not isinstance(cell, Cell) or not cell.known:
            raise Unsaid(f"{self._table.title}: {row}, {column} is missing")
        return cell

    def cell(self, row: str, column: str) -> Cell | str:
        """A cell as it stands in the table. Raises Unsaid where the table has no such row or column."""
        if row not in self.rows or column not in self.columns:
            raise Unsaid(f"{self._table.title} has no {row}, {column}")
        return dict(self._table.rows)[row][self.columns.index(column)]

    def known(self, rows: Iterable[str], column: str) -> dict[str, float]:
        """Row -> mean, of those rows whose cell is a finite number."""
        cells = {row: self.cell(row, column) for row in rows}
        return {row: cell.mean for row, cell in cells.items() if isinstance(cell, Cell) and cell.known}

    def steps(self, rows: Iterable[str], column: str) -> str:
        """'600 to 4000', or '600' where they are the same: the steps of the runs that those rows are of."""
        steps = [self.cell(row, column).run.content["steps"] for row in rows]
        return " to ".join(map(str, sorted({min(steps), max(steps)})))

    def first(self, column: str, among: Iterable[str]) -> list[str]:
        """Those of the rows `among` that are marked as best: the best one and all within the joint error of it."""
        return [name for name in among if isinstance(cell := self.cell(name, column), Cell) and cell.best]

    def best(self, row: str, column: str, among: Iterable[str]) -> bool:
        """Whether of the rows `among` this one alone is marked as best."""
        return self.first(column, among) == [row]

    def no_better(self, row: str, column: str, smaller: bool = False) -> list[str]:
        """The other rows with a number that are worse than this one or within the joint error of it, best first.

        Raises Unsaid where this one has no number.
        """
        found, mean, own = self.known(self.rows, column), self(row, column), self.cell(row, column)
        order = sorted(found, key=found.get, reverse=not smaller)
        worse = {name for name in order if (found[name] > mean) == smaller}
        return [name for name in order if name != row and (name in worse or within_error(self.cell(name, column), own))]

    def ranking(self, row: str, column: str, among: Iterable[str], smaller: bool = False) -> str:
        """'b 2.0, a 1.0 and c 0.50; a is number 2 of 3, c within the joint error of it'.

        The rows `among` with their numbers, the best first, the place of one of them, and who may as well be there.
        Raises Unsaid where it has no number.
        """
        self(row, column)  # raises Unsaid
        found, own = self.known(among, column), self.cell(row, column)
        order = sorted(found, key=found.get, reverse=not smaller)
        told = listed([f"{each} {digits(found[each])}" for each in order])
        alike = [each for each in order if each != row and within_error(self.cell(each, column), own)]
        level = f", {listed(alike)} within the joint error of it" if alike else ""
        return f"{told}; {row} is number {order.index(row) + 1} of {len(order)}{level}"

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return [name for name, _ in self._table.rows]

    @property
    def columns(self) -> list[str]:
        """The heads of the columns of numbers."""
        return list(self._table.columns[1:])


def said(find: Find, results: Sequence[Result]) -> tuple[list[Finding], str | None]:
    """The findings of a function as far as results reach, and why no further; None where all are said."""
    found = []
    try:
        for finding in find(results):
            found.append(finding)
    except UserError as reason:  # a number is missing, or results do not fit each other
        return found, str(reason)
    return found, None


def digits(number: float, significant: int = 2) -> str:
    """'0.0013': a number for a sentence, without an exponent, not rounded before the point."""
    if abs(number) >= 10 ** (significant - 1) or number == 0:
        return f"{number:.0f}"
    return f"{float(f'{number:.{significant}g}'):.{_places(number, significant)}f}"


def _places(number: float, significant: int) -> int:
    """Digits after the point that show `significant` digits of a number."""
    return significant - 1 - int(f"{number:.{significant - 1}e}".split("e")[1])


def listed(words: Sequence[str]) -> str:
    """'none', 'a', 'a and b', 'a, b and c'."""
    if not words:
        return "none"
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def no_better_than(number: Numbers, row: str, words: str, column: str, smaller: bool = False) -> Finding:
    """Which rows of a column are no better than this one, which `words` describe; smaller: a column of errors."""
    no_better = number.no_better(row, column, smaller)
    if not no_better:
        return Finding(f"{column}: all others are better than {words}.")
    verb = "is" if len(no_better) == 1 else "are"
    return Finding(f"{column}: {listed(no_better)} {verb} no better than {words}, within the joint error.")
