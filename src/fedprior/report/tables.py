"""One small table, and how it is written: as text, markdown, LaTeX, CSV or HTML."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedprior.errors import printable, unknown

if TYPE_CHECKING:
    from fedprior.report.terminal import Folding

Line = tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """What is known of a column besides its cells."""

    short: str  # its heading where room is scarce; also what it is chosen by
    better: str = ""  # "higher" or "lower": the best cells are marked
    wide: bool = False  # left out where room is scarce
    about: str = ""  # what the short heading means
    words: Mapping[str, str] = field(default_factory=dict)  # shorter words for cells


@dataclass(frozen=True)
class Table:
    """What is written: cells are texts already."""

    title: str
    note: str  # stands below
    head: Line
    body: tuple[Line, ...]
    left: int = 2  # as many of the first columns are text, to the left; the others are numbers, to the right
    remarks: int = 0  # as many of the last columns are text, too
    columns: tuple[Column, ...] = ()  # none: each is what its heading says
    values: tuple[tuple[float | None, ...], ...] = ()  # behind the cells, where the best are to be marked
    kinds: tuple[frozenset[str], ...] = ()  # of the rows: the best is that among rows of a kind
    label: str = ""  # by which a text refers to the table
    numbers: tuple[tuple[Any, ...], ...] = ()  # the lines of the CSV, the heading first; none: head and body

    def is_text(self, column: int) -> bool:
        """Whether a column is text, and not numbers."""
        return column < self.left or column >= len(self.head) - self.remarks

    def brief(self) -> Table:
        """The table where room is scarce: short headings, which the note explains, and fewer columns."""
        if not self.columns:
            return self
        kept = self._only([k for k, column in enumerate(self.columns) if not column.wide])
        words = [column.words for column in kept.columns]
        return dataclasses.replace(
            kept,
            note="; ".join(dict.fromkeys(text for text in (*(c.about for c in kept.columns), self.note) if text)),
            head=tuple(column.short for column in kept.columns),
            body=tuple(tuple(w.get(c, c) for c, w in zip(line, words, strict=True)) for line in kept.body),
            columns=(),
        )

    def choose(self, names: Sequence[str]) -> Table:
        """Only the columns of these short headings, or of what only one of them begins with; text comes first."""
        heads = [column.short for column in self.columns] or list(self.head)
        places = []
        for name in names:
            begin = [k for k, head in enumerate(heads) if head.casefold().startswith(name.casefold())]
            exact = [k for k in begin if heads[k].casefold() == name.casefold()]
            if len(found := exact or begin) != 1 or not name:
                raise unknown("column", name, heads)
            places += found
        kept = self._only(sorted(dict.fromkeys(places), key=lambda k: not self.is_text(k)))
        columns = tuple(dataclasses.replace(column, wide=False) for column in kept.columns)
        return dataclasses.replace(kept, columns=columns, numbers=())

    def _only(self, places: Sequence[int]) -> Table:
        def of(line: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(line[k] for k in places) if line else ()

        first_remark = len(self.head) - self.remarks
        return dataclasses.replace(
            self,
            head=of(self.head),
            body=tuple(map(of, self.body)),
            values=tuple(map(of, self.values)),
            columns=of(self.columns),
            left=sum(k < self.left for k in places),
            remarks=sum(k >= max(first_remark, self.left) for k in places),
        )

    def _repr_html_(self) -> str:
        return render(self, "html")


def render(tables: Table | Sequence[Table], format: str) -> str:
    """One table or several in one of the ``FORMATS``, without a newline at the end."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    several = [tables] if isinstance(tables, Table) else list(tables)
    return FORMATS[format]([shown(table, keep="\n" * (format == "csv")) for table in several])


def shown(table: Table, keep: str = "") -> Table:
    """The table with control characters as escapes: names may come from records of elsewhere."""

    def line(cells: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(printable(cell, keep) if isinstance(cell, str) else cell for cell in cells)

    return dataclasses.replace(
        table,
        title=printable(table.title, keep="\n"),
        note=printable(table.note, keep="\n"),
        head=line(table.head),
        body=tuple(map(line, table.body)),
        columns=tuple(dataclasses.replace(column, short=printable(column.short, keep)) for column in table.columns),
        numbers=tuple(map(line, table.numbers)),
    )


# -- text --------------------------------------------------------------------------------------------------------------


def rich_table(table: Table) -> Folding:
    """The table for a terminal of any width, to be printed by rich."""
    from fedprior.report.terminal import Folding

    return Folding(shown(table))


def _text(tables: Iterable[Table]) -> str:
    from rich.console import Console

    from fedprior.report.terminal import TERMINAL

    text = io.StringIO()
    for i, table in enumerate(tables):
        if i:
            text.write("\n")
        Console(width=TERMINAL, file=text, force_terminal=False, color_system=None).print(rich_table(table))
    return text.getvalue().rstrip("\n")


# -- markup ------------------------------------------------------------------------------------------------------------


def _markdown(tables: Iterable[Table]) -> str:
    return "\n\n".join(map(_markdown_table, tables))


def _markdown_table(table: Table) -> str:
    ruler = "".join("|---" if table.is_text(i) else "|---:" for i in range(len(table.head))) + "|"
    head, *body = (f"| {' | '.join(map(markdown_escape, line))} |" for line in (table.head, *table.body))
    above = [f"{markdown_escape(table.title)}.", ""] if table.title else []
    below = ["", f"{markdown_escape(table.note)}."] if table.note else []
    return "\n".join([*above, head, ruler, *body, *below])


def markdown_escape(text: str) -> str:
    r"""A text as Markdown prints it; an underscore within a word means nothing there.

    >>> print(markdown_escape("a_b | [x](y) *c* <b> _d_"))
    a_b \| \[x\](y) \*c\* \<b\> \_d\_
    """
    return re.sub(r"[\\`*|\[\]<>~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", text)


LATEX = {character: f"\\{character}" for character in "_%&#${}"} | {
    character: rf"\text{name}{{}}"
    for character, name in {
        **{"\\": "backslash", "~": "asciitilde", "^": "asciicircum"},
        **{"<": "less", ">": "greater", "|": "bar"},
    }.items()
}


SYMBOLS = str.maketrans({"±": r"$\pm$", "→": r"$\to$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"})


def latex_escape(text: str) -> str:
    r"""A text as LaTeX prints it, also at the beginning of a line, where a bracket would belong to the line before.

    >>> print(latex_escape("a_b & 10 % ± 1"), latex_escape("[red]"))
    a\_b \& 10 \% $\pm$ 1 {[}red]
    """
    special = re.sub(r"[\\~^_%&#${}<>|]", lambda match: LATEX[match.group()], text)
    return re.sub(r"^\s*([\[*])", r"{\1}", special).translate(SYMBOLS)


BEST, SECOND = 1, 2
SMALL = r"\footnotesize\setlength{\tabcolsep}{3pt}"  # so that the usual columns fit the width of an article


def ranks(table: Table) -> dict[tuple[int, int], int]:
    """The places (row, column) of the best and second-best cells of each column among rows of a kind; equals share.

    Values are compared as they are written: who cannot be told apart in print is equal.
    """
    found: dict[tuple[int, int], int] = {}
    for c, column in enumerate(table.columns):
        for kind in {kind for kinds in table.kinds for kind in kinds} if column.better and table.values else ():
            rows = [r for r, kinds in enumerate(table.kinds) if kind in kinds]
            values = {
                r: _as_written(table.body[r][c], value) for r in rows if (value := table.values[r][c]) is not None
            }
            sign = 1 if column.better == "higher" else -1
            best = sorted(
                {value for value in values.values() if not math.isnan(value)}, key=lambda value: -sign * value
            )
            for rank, value in enumerate(best[:SECOND], BEST):
                for r in (r for r in values if values[r] == value and len(rows) > 1):
                    found[r, c] = min(rank, found.get((r, c), SECOND))
    return found


def _as_written(cell: str, value: float) -> float:
    """The value as the cell gives it, in so many digits; a word, such as of the reference of differences, has none."""
    try:
        return float(cell.partition(" ")[0])
    except ValueError:
        return value


def _latex(tables: Iterable[Table]) -> str:
    return "\n\n".join(["% needs \\usepackage{booktabs}", *map(_latex_table, tables)])


def _latex_table(table: Table) -> str:
    marks = {BEST: "textbf", SECOND: "underline"}
    ranked = {place: marks[rank] for place, rank in ranks(table).items()}
    kept = [k for k in range(len(table.head)) if not (table.columns and table.columns[k].wide)]
    brief = table.brief()
    body = [
        [rf"\{ranked[r, k]}{{{cell}}}" if (r, k) in ranked else cell for k, cell in zip(kept, line, strict=True)]
        for r, line in enumerate([*map(latex_escape, line)] for line in brief.body)
    ]
    marked = "best in bold, second best underlined" if ranked else ""
    caption = latex_escape("; ".join(text for text in (table.title, brief.note, marked) if text))
    name = re.sub(r"[^a-z0-9]+", "-", (table.label or table.title).lower()).strip("-")
    about = [rf"\caption{{{' '.join(caption.split())}.}}", rf"\label{{tab:{name}}}"] if caption else []
    align = "".join("l" if brief.is_text(i) else "r" for i in range(len(brief.head)))
    head, *rows = (" & ".join(line) + r" \\" for line in (map(latex_escape, brief.head), *body))
    tabular = [
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        head,
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([r"\begin{table}[t]", r"\centering", *about, SMALL, *tabular, r"\end{table}"])


def _html(tables: Iterable[Table]) -> str:
    return "\n".join(map(_html_table, tables))


def _html_table(table: Table) -> str:
    def line(cells: Line, tag: str) -> str:
        aligned = (
            f'<{tag} style="text-align: {"left" if table.is_text(i) else "right"}">{html.escape(cell)}</{tag}>'
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(aligned)}</tr>"

    title = [f"<caption>{html.escape(table.title)}</caption>"] if table.title else []
    note = [f"<p>{html.escape(table.note)}</p>"] if table.note else []
    body = [line(cells, "td") for cells in table.body]
    return "\n".join(
        ["<table>", *title, f"<thead>{line(table.head, 'th')}</thead>", "<tbody>", *body, "</tbody>", "</table>", *note]
    )


def _csv(tables: Iterable[Table]) -> str:
    """Tables with the same heading follow one another under it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heading: tuple[Any, ...] | None = None
    for table in tables:
        head, *body = table.numbers or (table.head, *table.body)
        if head != heading:
            writer.writerow(head)
        writer.writerows([["" if cell is None else cell for cell in line] for line in body])
        heading = head
    return text.getvalue().rstrip("\n")


FORMATS: dict[str, Callable[[Iterable[Table]], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "html": _html,
}
