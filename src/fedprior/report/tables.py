"""One small table, and how it is written: as text, markdown, LaTeX, CSV or HTML."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprior.errors import printable, unknown

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Line = tuple[str, ...]
TERMINAL = 80  # columns
SHORTEST_NAME = 6  # columns that are left to names before they are folded


@dataclass(frozen=True)
class Table:
    """What is written: cells are texts already."""

    title: str
    note: str  # stands below
    head: Line
    body: tuple[Line, ...]
    left: int = 2  # as many of the first columns are text, to the left; the others are numbers, to the right
    remarks: int = 0  # as many of the last columns are text, too
    terminal: Table | None = None  # the same with short words, for a terminal
    numbers: tuple[
        tuple[Any, ...], ...
    ] = ()  # the lines of the CSV, the heading first; if there are none, head and body

    def is_text(self, column: int) -> bool:
        """Whether a column is text, and not numbers."""
        return column < self.left or column >= len(self.head) - self.remarks

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
        terminal=None if table.terminal is None else shown(table.terminal, keep),
        numbers=tuple(map(line, table.numbers)),
    )


# -- text --------------------------------------------------------------------------------------------------------------


def rich_table(table: Table) -> RichTable:
    """The table for a terminal: what repeats the line above on the left is left out, and numbers never wrap."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = shown(table.terminal or table)
    body = [tuple(cell.replace(" ± ", "±") for cell in line) for line in table.body]
    width = sum(max(map(len, column)) + 2 for column in zip(table.head, *body, strict=True)) - 2
    drawn = RichTable(
        title=Text(table.title, style="bold") if table.title else None,
        title_justify="left",
        caption=Text(table.note, style="dim italic") if table.note else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        padding=(0, 1) if width <= TERMINAL else 0,
    )
    wraps = range(len(table.head))[-table.remarks :] if table.remarks else (0,)  # what gives way if there is no room
    for i, name in enumerate(table.head):
        drawn.add_column(
            Text(name), justify="left" if table.is_text(i) else "right", no_wrap=i not in wraps, overflow="fold"
        )
    for above, line in itertools.pairwise([(), *body]):
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(above, line, strict=False)))
        repeated = min(same, table.left - 1)
        drawn.add_row(*map(Text, ["" if i < repeated else cell for i, cell in enumerate(line)]))
    return drawn


def _text(tables: Iterable[Table]) -> str:
    from rich.console import Console

    text = io.StringIO()
    for i, table in enumerate(tables):
        if i:
            text.write("\n")
        console = Console(width=_width(table.terminal or table), file=text, force_terminal=False, color_system=None)
        console.print(rich_table(table))
    return text.getvalue().rstrip("\n")


def _width(table: Table) -> int:
    """The columns of a terminal, or as many as let no number be cut off."""
    first, *others = (max(map(len, column)) for column in zip(table.head, *table.body, strict=True))
    numbers = sum(others) + 2 * len(others)
    return TERMINAL if table.remarks or numbers < TERMINAL - SHORTEST_NAME else first + numbers


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


def latex_escape(text: str) -> str:
    r"""A text as LaTeX prints it, also at the beginning of a line, where a bracket would belong to the line before.

    >>> print(latex_escape("a_b & 10 % ± 1"), latex_escape("[red]"))
    a\_b \& 10 \% $\pm$ 1 {[}red]
    """
    special = re.sub(r"[\\~^_%&#${}<>|]", lambda match: LATEX[match.group()], text)
    return re.sub(r"^\s*([\[*])", r"{\1}", special).replace("±", r"$\pm$")


def _latex(tables: Iterable[Table]) -> str:
    return "\n\n".join(map(_latex_table, tables))


def _latex_table(table: Table) -> str:
    head, *body = (" & ".join(map(latex_escape, line)) + r" \\" for line in (table.head, *table.body))
    align = "".join("l" if table.is_text(i) else "r" for i in range(len(table.head)))
    about = [f"% {' '.join(text.split())}" for text in (table.title, table.note) if text]
    lines = [*about, rf"\begin{{tabular}}{{{align}}}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"]
    return "\n".join(lines)


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
