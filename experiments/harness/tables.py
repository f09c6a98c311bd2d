"""A table of numbers with their errors, and its four forms: terminal, Markdown, LaTeX, CSV."""

import csv
import dataclasses
import io
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table

from experiments.harness.settings import choose

_TINY, _HUGE = 1e-3, 1e6  # below and from these on numbers are written with a power of ten
_ROUNDING = 1e-6  # an error that is this part of its mean is that of sums in float32: all values are the same
MISSING, NOT_FINITE = "missing", "not finite"
BEST = "in bold the best of each column and those within the joint error of it"  # of mark_best, for captions
# LaTeX for the symbols of captions, heads and names: pdfLaTeX knows Latin letters only, and its text font has no '>'.
_LATEX = str.maketrans(
    {symbol: "\\" + symbol for symbol in "&%_#${}"}
    | {symbol: f"${symbol}$" for symbol in "<>|"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"σ": r"$\sigma$", "±": r"$\pm$", "≤": r"$\leq$"}
)
_POWER = re.compile(r"e([+-]\d+)$")  # of ten, at the end of a number


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of ours, a number of a paper, or a missing number.

    Attributes:
      mean: the number; None for a cell that no run fills, NaN for a run whose number is not finite.
      error: its standard error, in the unit of the mean; None where there is none.
      best: whether it is the best of its column.
      decimals: digits after the point, as a paper prints its number; None for those that the error leaves, or three
        significant ones without an error.
      run: the result that it is a number of, for those who ask how it was made; None where there is none.
    """

    mean: float | None = None
    error: float | None = None
    best: bool = False
    decimals: int | None = None
    run: Any = dataclasses.field(default=None, compare=False, repr=False)

    def text(self, plus_minus: str = "±") -> str:
        """'0.123 ± 0.004', 'missing' or 'not finite'."""
        if not self.known:
            return self.number
        if self.decimals is not None:
            texts = [f"{number:.{self.decimals}f}" for number in (self.mean, self.error) if number is not None]
        elif self.error is None:
            texts = [_significant(self.mean)]
        elif self.error <= _ROUNDING * abs(self.mean):
            texts = [_significant(self.mean), "0"]
        else:
            return _with_error(self.mean, self.error, plus_minus)
        return f" {plus_minus} ".join(texts)

    @property
    def known(self) -> bool:
        """Whether there is a finite number."""
        return self.mean is not None and math.isfinite(self.mean)

    @property
    def number(self) -> float | str:
        """The mean, or the text in its place."""
        if self.mean is None:
            return MISSING
        return self.mean if self.known else NOT_FINITE


def measured(
    summary: Mapping[str, Any] | None, scale: float = 1.0, errors: float = 1.0, decimals: int | None = None
) -> Cell:
    """The mean of a metric times `scale`, and as many of its standard errors; missing where there is no summary.

    A single number, such as a time, has no standard error.
    """
    if summary is None:
        return Cell()
    sem = None if "n" in summary and summary["n"] == 1 else summary["sem"]
    error = None if sem is None else errors * scale * sem
    return Cell(scale * _or_nan(summary["mean"]), error, decimals=decimals, run=summary.get("run"))


def over_seeds(summary: Mapping[str, Any] | None, decimals: int | None = None) -> Cell:
    """The mean of a metric and the standard deviation over seeds; none where there is one, or one is not finite."""
    if summary is None:
        return Cell()
    seeds = summary["seeds"]
    spread = statistics.stdev(seeds) if len(seeds) > 1 and None not in seeds else None
    return Cell(_or_nan(summary["mean"]), spread, decimals=decimals, run=summary.get("run"))


def median(summary: Mapping[str, Any] | None) -> Cell:
    """The median of a metric over its tasks; missing where there is no summary."""
    return Cell() if summary is None else Cell(_or_nan(summary["median"]), run=summary.get("run"))


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells under column heads.

    Attributes:
      title, caption: what the cells are, and what they are not.
      columns: heads, of the row names first.
      rows: name -> cells, one for each further head.
      error: what the errors are.
      facts: of the runs: preset, number of seeds, n. The caption has them too, but CSV has no caption.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | str]]]
    caption: str
    error: str = "sem"
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, cells in self.rows:
            if len(cells) != len(self.columns) - 1:
                raise ValueError(f"row {name!r} has {len(cells)} cells for {len(self.columns) - 1} columns")

    def terminal(self) -> rich.table.Table:
        table = rich.table.Table(title=self.title, caption=self.caption)
        table.add_column(self.columns[0], no_wrap=True)
        for column in self.columns[1:]:
            table.add_column(column, justify="right")
        for name, cells in self.rows:
            texts = [_plain(cell).replace(" ±", "\n±") for cell in cells]  # two lines: narrow enough for 80 columns
            table.add_row(
                name, *(f"[bold]{text}[/bold]" if _is_best(cell) else text for text, cell in zip(texts, cells))
            )
        return table

    def markdown(self) -> str:
        def line(parts):
            return "| " + " | ".join(parts) + " |"

        rows = [
            line([name, *(f"**{_plain(c)}**" if _is_best(c) else _plain(c) for c in cells)])
            for name, cells in self.rows
        ]
        rule = line(["---"] + ["---:"] * (len(self.columns) - 1))
        return "\n".join([f"**{self.title}**", "", line(self.columns), rule, *rows, "", self.caption]) + "\n"

    def latex(self, label: str) -> str:
        """A table of the package booktabs, its caption above it, to be referred to by \\ref{label}."""

        def cell(c):
            text = _escaped(c) if isinstance(c, str) else _POWER.sub(_power, c.text(r"$\pm$"))
            return rf"\textbf{{{text}}}" if _is_best(c) else text

        rows = [" & ".join([_escaped(name), *map(cell, cells)]) + r" \\" for name, cells in self.rows]
        head = " & ".join(map(_escaped, self.columns)) + r" \\"
        above = [
            r"% \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(self.title)}. {_escaped(self.caption)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
        ]
        body = [r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        return "\n".join([*above, *body, r"\end{tabular}", r"\end{table}"]) + "\n"

    def csv(self) -> str:
        """One line for each row: every column, each followed by its errors where it has any, then the facts."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        widths = [
            1 + any(isinstance(cell, Cell) and cell.error is not None for cell in column)
            for column in zip(*(cells for _, cells in self.rows))
        ]
        heads = ((column, f"{column} {self.error}")[:width] for column, width in zip(self.columns[1:], widths))
        writer.writerow([self.columns[0], *itertools.chain(*heads), *self.facts])
        for name, cells in self.rows:
            numbers = (_numbers(cell)[:width] for cell, width in zip(cells, widths))
            writer.writerow([name, *itertools.chain(*numbers), *self.facts.values()])
        return text.getvalue()


def of_metrics(title: str, metrics: Mapping[str, Mapping[str, Any]], caption: str) -> Table:
    """Every metric under its name: the mean, with its standard error if n is above 1, and the median."""
    rows = [
        (name, [measured(summary if summary["n"] > 1 else summary | {"sem": None}), median(summary)])
        for name, summary in metrics.items()
    ]
    return Table(title, ["metric", "mean", "median"], rows, caption)


# Form -> (table, its name) -> text.
FORMATS = {
    "md": lambda table, name: table.markdown(),
    "tex": lambda table, name: table.latex(f"tab:{name.replace('/', ':')}"),
    "csv": lambda table, name: table.csv(),
}


def render(table: Table, form: str, name: str) -> str:
    """The table `name`, such as 'cmanp/table4', as text. Raises ConfigError for a form other than md, tex, csv."""
    return choose(FORMATS, form, "--format")(table, name)


def mark_best(
    column: Sequence[Cell], smaller_is_better: bool = True, judged: Sequence[Cell] | None = None
) -> list[Cell]:
    """The column with its best cell marked, and every cell that is no further from it than the joint error of both.

    judged: the same numbers with their standard errors, where the column shows another spread.
    """
    judged = column if judged is None else judged
    known = [cell for cell in judged if cell.known]
    if not known:
        return list(column)
    best = (min if smaller_is_better else max)(known, key=lambda cell: cell.mean)
    marks = [cell.known and within_error(cell, best) for cell in judged]
    return [dataclasses.replace(cell, best=mark) for cell, mark in zip(column, marks, strict=True)]


def within_error(cell: Cell, other: Cell, errors: float = 1.0) -> bool:
    """Whether two numbers are no further apart than so many times their joint error."""
    return abs(cell.mean - other.mean) <= errors * math.hypot(cell.error or 0.0, other.error or 0.0)


def _is_best(cell: Cell | str) -> bool:
    return isinstance(cell, Cell) and cell.best


def _plain(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text()


def _numbers(cell: Cell | str) -> tuple:
    """The number of a cell and its error."""
    return (cell, "") if isinstance(cell, str) else (cell.number, "" if cell.error is None else cell.error)


def _significant(number: float) -> str:
    """Three significant digits, or all before the point of a number that is not huge."""
    return f"{number:.0f}" if 999.5 <= abs(number) < _HUGE else f"{number:.3g}"


def _with_error(mean: float, error: float, plus_minus: str) -> str:
    """A number to the digits that its error, above 0, leaves it; both over one power of ten if both are tiny, or huge.

    The error has one significant digit, or two where the first is 1: '4.5 ± 0.3', '4.47 ± 0.13', '0.00 ± 0.06'.
    """
    largest = max(abs(mean), error)
    power = 0 if _TINY <= largest < _HUGE else math.floor(math.log10(largest))
    mean, error = mean / 10**power, error / 10**power
    first, exponent = f"{error:.1e}".split("e")  # rounded: 0.096 begins with 9, 0.0996 with 1
    decimals = max(0, (1 if first.startswith("1") else 0) - int(exponent))
    mean = round(mean, decimals) + 0.0  # no -0.00
    text = f"{mean:.{decimals}f} {plus_minus} {error:.{decimals}f}"
    return f"({text})e{power:+03d}" if power else text


def _or_nan(number: float | None) -> float:
    """A number of a result.json, which has None for what is not finite."""
    return math.nan if number is None else number


def _power(match: re.Match) -> str:
    return rf" $\times 10^{{{int(match[1])}}}$"


def _escaped(text: str) -> str:
    return text.translate(_LATEX)
