"""A table on a terminal of any width: numbers are never cut, and a name is broken between its words only.

Where a table is too wide, names are given several lines; then columns are shown in blocks below one another, each beside the
names; and where not even that fits, or where texts would be squeezed, every row becomes a block of its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from fedprior.report.tables import Line, Table

TERMINAL = 80  # columns, where it is not known
WIDEST = 100  # of sentences
NAME_LINES = 3  # that a name may take
REMARK = 16  # columns that a text needs to be read


class Folding:
    """What rich prints: it asks for the width when it does."""

    def __init__(self, table: Table):
        self.table = table.brief()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        table, width = self.table, options.max_width
        if table.title:
            yield Text("\n".join(wrapped(table.title, min(width, WIDEST))), style="bold")
        yield from _folded(table, width)
        if table.note:
            yield Text("\n".join(wrapped(table.note, min(width, WIDEST))), style="dim")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A text in lines, all but the first indented; a word that is longer than a line is broken behind a sign.

    >>> wrapped("a long-winded word", 8)
    ['a long-', 'winded', 'word']
    """
    from rich.cells import cell_len

    lines = [""]
    for word in text.split():
        fits = len(indent) + cell_len(word) <= width
        for k, part in enumerate([word] if fits else re.findall(r"[^-_=,/:]*[-_=,/:]+|[^-_=,/:]+", word)):
            space = " " if k == 0 and lines[-1].strip() else ""
            if lines[-1].strip() and cell_len(lines[-1] + space + part) > width:
                lines.append(indent + part)
            else:
                lines[-1] += space + part
    return lines


def _folded(table: Table, width: int) -> Iterator[RenderableType]:
    from rich.cells import cell_len

    head, body = table.head, [tuple(cell.replace(" ± ", "±") for cell in line) for line in table.body]
    cells = list(zip(head, *body, strict=True))
    natural = [max(map(cell_len, column)) for column in cells]
    for gap, squeezed in ((2, False), (1, False), (2, True), (1, True)):
        widths = _squeezed(table, cells, natural, gap, width) if squeezed else natural
        if widths and sum(widths) + gap * (len(widths) - 1) <= width:
            yield _grid(table, head, body, widths, range(len(head)), gap)
            return
    for name in (natural[0], _longest_word(cells[0])):  # a name in one line, or in several
        widths = [name, *natural[1:]]
        if groups := list(_groups(table, widths, width)):
            for k, places in enumerate(groups):
                yield from [""] * (k > 0)
                yield _grid(table, head, body, widths, places, 2)
            return
    yield from _rows(table, head, body, width)


def _squeezed(table: Table, cells: Sequence[Line], natural: list[int], gap: int, width: int) -> list[int]:
    """Narrower widths: texts at the end give way, or else names at the beginning, which may take some lines."""
    widths, gaps = list(natural), gap * (len(natural) - 1)
    if table.remarks:
        least = [min(w, max(REMARK, len(column[0]))) for w, column in zip(natural, cells, strict=True)]
        wraps = range(len(widths))[-table.remarks :]
        while sum(widths) + gaps > width and (wide := [k for k in wraps if widths[k] > least[k]]):
            widths[max(wide, key=lambda k: widths[k])] -= 1  # the widest of them
    elif table.left:
        widths[0] = width - gaps - sum(widths[1:])
        if widths[0] < _longest_word(cells[0]) or any(len(wrapped(name, widths[0])) > NAME_LINES for name in cells[0]):
            return []
    return widths


def _longest_word(cells: Line) -> int:
    from rich.cells import cell_len

    return max((cell_len(word) for cell in cells for word in cell.split()), default=0)


def _groups(table: Table, natural: Sequence[int], width: int) -> Iterator[list[int]]:
    """The columns of each block: names, and as many others as there is room for. None if there is none."""
    names, rest = list(range(table.left)), list(range(table.left, len(natural)))
    taken = sum(natural[k] + 2 for k in names)
    if table.remarks or not names or any(taken + natural[k] > width for k in rest):
        return
    while rest:
        room, block = width - taken, list[int]()
        while rest and (not block or natural[rest[0]] <= room):
            room -= natural[rest[0]] + 2
            block.append(rest.pop(0))
        yield [*names, *block]


def _grid(
    table: Table, head: Line, body: Sequence[Line], widths: Sequence[int], places: Sequence[int], gap: int
) -> RenderableType:
    """Columns side by side; on the left, what repeats the line above is left out."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True, padding=(0, 1) if gap == 2 else 0
    )
    for k in places:
        justify = "left" if table.is_text(k) else "right"
        drawn.add_column(Text(head[k]), justify=justify, width=widths[k], overflow="fold")  # type: ignore[arg-type]
    for above, line in itertools.pairwise([(), *body]):
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(above, line, strict=False)))
        repeated = min(same, table.left - 1)
        drawn.add_row(*(Text("" if k < repeated else line[k]) for k in places))
    return drawn


def _rows(table: Table, head: Line, body: Sequence[Line], width: int) -> Iterator[RenderableType]:
    """Every row as a block: its name, and below it a line for each of its cells."""
    from rich.text import Text

    for k, line in enumerate(body):
        if k:
            yield ""
        if table.left:
            yield Text("\n".join(wrapped(", ".join(line[: table.left]), width)), style="bold")
        for name, cell in zip(head[table.left :], line[table.left :], strict=True):
            if cell:
                beside = f"  {name}: " if name else "  "
                yield Text(beside[:2] + "\n".join(wrapped(beside[2:] + cell, max(width - 2, 10), "    ")))
