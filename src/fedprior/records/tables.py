"""The tables of a run's folder: CSV with a checksum at the end of every record, appended to and cut back.

The header says which columns there are, so that a table is read by itself, whatever wrote it: the columns of an older
format have no checksum, and metrics that were not measured then are empty.
"""

from __future__ import annotations

import csv
import io
import math
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedprior.records.formats import RENAMED_COLUMNS
from fedprior.records.schema import ACCURACY, KEYS, ClientId, ClientRow, Row, Times
from fedprior.records.schema import CHECK as CHECK

TABLES = tuple(KEYS)
BROKEN = "its checksum is wrong"
AnyRow = Row | ClientRow | Times


def columns(table: str, metrics: Sequence[str]) -> list[str]:
    """The columns of a table for these metrics, without the checksum."""
    return [*KEYS[table], *(metrics if table != "times.csv" else ())]


def header(table: str, metrics: Sequence[str]) -> str:
    """The first line."""
    return _text([*columns(table, metrics), CHECK]) + "\n"


def encode(table: str, rows: Iterable[AnyRow], metrics: Sequence[str]) -> str:
    """Rows as lines. Numbers are written so that reading them gives the same bits."""
    return "".join(_checked(_cells(row, metrics)) for row in rows)


def _cells(row: AnyRow, metrics: Sequence[str]) -> list[Any]:
    if isinstance(row, Times):
        return list(row)
    *keys, values = row
    return [*keys, *("" if (value := values.get(name)) is None else value for name in metrics)]


def _checked(cells: Sequence[Any]) -> str:
    text = _text(cells)
    return f"{text},{_checksum(text)}\n"


def _text(cells: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)  # so that a cell with either of the two is quoted
    return line.getvalue()[:-2]


class Damage(NamedTuple):
    """What is wrong with a line."""

    line: int  # as an editor counts: the heading is 1
    reason: str


@dataclass(frozen=True)
class Scan:
    """What a table holds, and what of it cannot be read."""

    rows: list[AnyRow]
    lines: list[int]  # where each row begins
    damage: list[Damage]
    torn: bool  # whether the damage is only that the last record was never written whole, as when a run is killed
    columns: list[str]
    checked: bool  # whether records have checksums


class _Flaw(ValueError):
    """Why a line is not a valid record."""


def scan(table: str, text: str, clients: Sequence[ClientId] = ()) -> Scan:
    """The whole records of a table, where they are, and where it is damaged.

    A record that was being written when the run was killed, or that is damaged, is left out. ``clients``: what the clients
    are called, where they have names of their own; a name may look like a number.
    """
    known = {str(client): client for client in clients}
    head, _, body = text.partition("\n")
    try:
        names = _parsed(head)
    except csv.Error:
        names = []
    if not (checked := CHECK in names):
        names = [RENAMED_COLUMNS.get(name, name) for name in names]
    if not set(KEYS[table]) <= set(names):  # without its heading, nothing can be read
        return Scan([], [], [Damage(1, "its heading is lost" if text else "the file is empty")], False, names, False)
    rows, lines, damage, torn = list[AnyRow](), list[int](), list[Damage](), False
    for line, record, is_whole in _records(body) if checked else _plain_records(body):
        try:
            if not is_whole:
                raise _Flaw(BROKEN if checked else "it is cut short")
            cells = _named_cells(names, _parsed(record))
            row = _row(table, dict(cells), known)
            if not checked:
                _check_plausible(row, cells)
        except (ValueError, csv.Error) as error:
            torn = not is_whole and not damage and not text.endswith("\n")
            damage.append(Damage(line, _reason(error)))
        else:
            rows.append(row)
            lines.append(line)
            torn = False
    return Scan(rows, lines, damage, torn and len(damage) == 1, names, checked)


def _plain_records(body: str) -> Iterator[tuple[int, str, bool]]:
    """The lines of a table without checksums: number, text, and whether it ends in a line break."""
    *whole, rest = body.split("\n")
    yield from ((n, line, True) for n, line in enumerate(whole, 2))
    if rest:
        yield len(whole) + 2, rest, False


def _records(body: str) -> Iterator[tuple[int, str, bool]]:
    """The records: first line, text, and whether the checksum is right. It may take several lines, as a name may."""
    begun, first, sum_of_begun = list[str](), 0, 0
    lines = body.split("\n")
    for n, line in enumerate(lines, 2):
        cells, mark = line[:-9].encode(), line[-9:]
        if mark == f",{zlib.crc32(cells):08x}":
            if begun:
                yield first, "\n".join(begun), False
            yield n, line, True
            begun = []
        elif begun and mark == f",{zlib.crc32(cells, sum_of_begun):08x}":
            yield first, "\n".join([*begun, line]), True
            begun = []
        elif begun or '"' in line:
            first, sum_of_begun = (first, sum_of_begun) if begun else (n, 0)
            begun.append(line)
            sum_of_begun = zlib.crc32(f"{line}\n".encode(), sum_of_begun)
        elif line or n < len(lines) + 1:
            yield n, line, False
    if begun:
        yield first, "\n".join(begun), False


def outline(table: str, text: str) -> Scan:
    """What a table holds without its values, which takes less time: its rows are (round, model, data)."""
    head, _, body = text.partition("\n")
    empty = scan(table, head)
    if empty.damage or not empty.checked:
        return scan(table, text)
    rows, lines, damage, torn = list[Any](), list[int](), list[Damage](), False
    for line, record, is_whole in _records(body):
        try:
            if not is_whole:
                raise _Flaw(BROKEN)
            t, model, data = record.split(",", 3)[:3]
            rows.append((int(t), model, data))
            lines.append(line)
            torn = False
        except ValueError as error:
            torn = not is_whole and not damage and not text.endswith("\n")
            damage.append(Damage(line, _reason(error)))
    return Scan(rows, lines, damage, torn and len(damage) == 1, empty.columns, True)


def rows_of(text: str, rounds: Collection[int], clients: Sequence[ClientId] = ()) -> list[ClientRow]:
    """The rows of some rounds in the text of clients.csv: rounds stand in order, and no other is looked at."""
    if any("\n" in client for client in clients if isinstance(client, str)):  # a line of a name may look like a row
        every = scan("clients.csv", text, clients).rows
        return [row for row in every if isinstance(row, ClientRow) and row.round in rounds]
    head, _, _ = text.partition("\n")
    parts, end, key = list[str](), 0, ",[a-z-]+,[a-z]+,"  # what follows a round
    for t in sorted(rounds):
        if (first := re.compile(rf"\n{t}{key}").search(text, end)) is not None:
            after = re.compile(rf"\n(?!{t},)\d+{key}").search(text, first.start())
            end = len(text) if after is None else after.start()
            parts.append(text[first.start() + 1 : end + 1])  # with the line break behind it: without one, a row is torn
    found = scan("clients.csv", "\n".join([head, "".join(parts)]), clients).rows if parts else []
    return [row for row in found if isinstance(row, ClientRow) and row.round in rounds]


def _check_plausible(row: AnyRow, cells: Mapping[str, str]) -> None:
    """Refuse what no run writes, where no checksum tells."""
    if not all(cells.values()):
        raise _Flaw("a value is missing")
    numbers = row[1:] if isinstance(row, Times) else row.values.values()
    percent = [] if isinstance(row, Times) else [v for name, v in row.values.items() if name == ACCURACY.name]
    if row.round < 1 or not all(map(math.isfinite, numbers)) or any(not 0 <= value <= 100 for value in percent):
        raise _Flaw("it holds a number that no run gives")


def _checksum(cells: str) -> str:
    return f"{zlib.crc32(cells.encode()):08x}"


def _parsed(record: str) -> list[str]:
    return next(csv.reader([record]), [])


def _named_cells(names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise _Flaw(f"it has {len(cells)} entries where the heading names {len(names)}")
    return dict(zip(names, cells, strict=True))


def _reason(error: Exception) -> str:
    """What is wrong with a record, without the words of Python's own conversions."""
    return str(error) if isinstance(error, _Flaw | csv.Error) else "it holds something else where a number belongs"


def _row(table: str, cells: dict[str, str], known: Mapping[str, ClientId]) -> AnyRow:
    if table == "times.csv":
        return Times(int(cells["round"]), float(cells["train_seconds"]), float(cells["evaluation_seconds"]))
    keys = {key: cells.pop(key) for key in KEYS[table]}
    values = {name: float(cell) for name, cell in cells.items() if cell and name != CHECK}
    where = (int(keys["round"]), keys["model"], keys["data"])
    if table == "metrics.csv":
        return Row(*where, keys["average"], values)
    return ClientRow(*where, _client(keys["client"], known), int(keys["samples"]), values)


def _client(text: str, known: Mapping[str, ClientId]) -> ClientId:
    if text in known:
        return known[text]
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else text  # "007" is a name
