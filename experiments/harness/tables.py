"""A table of numbers with their errors, and its four forms: terminal, Markdown, LaTeX, CSV."""
import csv
import dataclasses
import io
from collections.abc import Sequence

import rich.table

from experiments.harness.settings import choose

MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of ours, a number of a paper, or the absence of one.

    Attributes:
      mean: the number; None for a cell that no run fills.
      error: its standard error, in the unit of the mean; None where there is none.
      best: whether it is the best of its column.
    """

    mean: float | None = None
    error: float | None = None
    best: bool = False

    def text(self, plus_minus: str = "±") -> str:
        """'0.123 ± 0.004', or 'missing'."""
        if self.mean is None:
            return MISSING
        number = f"{self.mean:.3g}" if abs(self.mean) < 1000 else f"{self.mean:.0f}"
        return number if self.error is None else f"{number} {plus_minus} {self.error:.1g}"


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells under column heads; `caption` says what they are and what they are not, `error` what the errors are."""

    title: str
    columns: Sequence[str]  # heads; the first is that of the row names
    rows: Sequence[tuple[str, Sequence[Cell | str]]]
    caption: str
    error: str = "sem"

    def terminal(self) -> rich.table.Table:
        table = rich.table.Table(title=self.title, caption=self.caption)
        table.add_column(self.columns[0], no_wrap=True)
        for column in self.columns[1:]:
            table.add_column(column, justify="right")
        for name, cells in self.rows:
            texts = [_plain(cell).replace(" ±", "\n±") for cell in cells]  # one above the other: narrow enough for 80 columns
            table.add_row(name, *(f"[bold]{text}[/bold]" if _is_best(cell) else text for text, cell in zip(texts, cells)))
        return table

    def markdown(self) -> str:
        def line(parts):
            return "| " + " | ".join(parts) + " |"

        rows = [line([name, *(f"**{_plain(c)}**" if _is_best(c) else _plain(c) for c in cells)]) for name, cells in self.rows]
        rule = line(["---"] + ["---:"] * (len(self.columns) - 1))
        return "\n".join([f"**{self.title}**", "", line(self.columns), rule, *rows, "", self.caption]) + "\n"

    def latex(self) -> str:
        def cell(c):
            text = _escaped(c) if isinstance(c, str) else c.text(r"$\pm$")
            return rf"\textbf{{{text}}}" if _is_best(c) else text

        rows = [" & ".join([_escaped(name), *map(cell, cells)]) + r" \\" for name, cells in self.rows]
        head = " & ".join(map(_escaped, self.columns)) + r" \\"
        body = "\n".join([rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\hline", head, r"\hline", *rows])
        caption = rf"\caption{{{_escaped(self.title)}. {_escaped(self.caption)}}}"
        return "\n".join([r"\begin{table}", r"\centering", body, r"\hline", r"\end{tabular}", caption, r"\end{table}"]) + "\n"

    def csv(self) -> str:
        """One line for each row; each number in two columns, the second its error."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([self.columns[0], *(part for column in self.columns[1:] for part in (column, f"{column} {self.error}"))])
        for name, cells in self.rows:
            writer.writerow([name, *(part for cell in cells for part in _numbers(cell))])
        return text.getvalue()


FORMATS = {"md": Table.markdown, "tex": Table.latex, "csv": Table.csv}


def render(table: Table, form: str) -> str:
    """The table as text. Raises ConfigError for a form other than md, tex, csv."""
    return choose(FORMATS, form, "--format")(table)


def mark_best(column: Sequence[Cell], smaller_is_better: bool = True) -> list[Cell]:
    """The column with its best cell marked, and every cell whose error bar reaches it."""
    known = [cell for cell in column if cell.mean is not None]
    if not known:
        return list(column)
    best = (min if smaller_is_better else max)(known, key=lambda cell: cell.mean)
    return [dataclasses.replace(cell, best=cell.mean is not None and _within_error(cell, best)) for cell in column]


def _within_error(cell: Cell, best: Cell) -> bool:
    return abs(cell.mean - best.mean) <= ((cell.error or 0) ** 2 + (best.error or 0) ** 2) ** 0.5


def _is_best(cell: Cell | str) -> bool:
    return isinstance(cell, Cell) and cell.best


def _plain(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text()


def _numbers(cell: Cell | str) -> tuple:
    return (cell, "") if isinstance(cell, str) else (MISSING if cell.mean is None else cell.mean, cell.error or "")


def _escaped(text: str) -> str:
    for symbol in "&%_#$":
        text = text.replace(symbol, "\\" + symbol)
    return text
