"""The tables of a run's folder: CSV with a checksum at the end of every record, appended to and cut back.

The header says which columns there are, so that a table is read by itself, whatever wrote it: the columns of an older
format have no checksum, and metrics that were not measured then are empty.
"""

from __future__ import annotations

import csv
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedprior.records.schema import RENAMED_COLUMNS, ClientId, ClientRow, Row, Times

CHECK = "check"
KEYS = {
    "metrics.csv": ("round", "model", "data", "average"),
    "clients.csv": ("round", "model", "data", "client", "samples"),
    "times.csv": ("round", "train_seconds", "evaluation_seconds"),
}
TABLES = tuple(KEYS)
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


def decode(table: str, text: str, clients: Sequence[ClientId] = ()) -> list[AnyRow]:
    """The whole records of a table; one that was being written when the run was killed, or that is damaged, is left out.

    ``clients``: what the clients are called, where they have names of their own; a name may look like a number.
    """
    known = {str(client): client for client in clients}
    head, _, body = text.partition("\n")
    names = [RENAMED_COLUMNS.get(name, name) for name in _parsed(head)]
    if not set(KEYS[table]) <= set(names):
        return []  # the header is lost, and without it nothing can be read
    rows = []
    for record in _whole(body) if CHECK in names else body.split("\n")[:-1]:
        try:
            rows.append(_row(table, dict(zip(names, _parsed(record), strict=True)), known))
        except ValueError:
            continue
    return rows


def _whole(body: str) -> Iterator[str]:
    """The records whose checksum is right; one takes several lines where the name of a client does."""
    begun = ""
    for line in body.split("\n"):
        record = next((text for text in (line, begun + line) if _is_whole(text)), None)
        if record is not None:
            yield record
            begun = ""
        else:
            begun = f"{begun}{line}\n" if '"' in begun + line else ""


def _is_whole(record: str) -> bool:
    return record[-9:] == f",{_checksum(record[:-9])}"


def _checksum(cells: str) -> str:
    return f"{zlib.crc32(cells.encode()):08x}"


def _parsed(record: str) -> list[str]:
    return next(csv.reader([record]), [])


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
