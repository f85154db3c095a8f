"""Tables in text files: comma-separated (or by semicolons or tabs), with the columns' names in the first line."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.data.cells import Faults, numbers
from fedprior.data.columns import Columns, Table
from fedprior.errors import FedpriorError, first_line

ROWS_AT_ONCE = 512  # so few that a processor's cache holds their cells


def read_csv(path: Path, wanted: Columns) -> Table:
    """The wanted columns of a file of text, read piece by piece. Empty lines are passed over."""
    with _opened(path) as file:
        begun: list[str] = []  # the lines up to the first that is not empty
        for line in file:
            begun.append(line)
            if line.strip():
                break
        mark = _delimiter(path, begun[-1] if begun else "")
        reader = csv.reader(itertools.chain(begun, file), delimiter=mark, skipinitialspace=True, strict=True)
        try:
            return _read(path, reader, wanted)
        except csv.Error as error:
            raise FedpriorError(
                f"cannot read {path.name} near line {reader.line_num} ({error}); look for a quotation mark left open"
            ) from error


def _read(path: Path, reader: Any, wanted: Columns) -> Table:
    header = next((row for row in reader if any(cell.strip() for cell in row)), None)
    if header is None:
        raise FedpriorError(f"{path.name} is empty; its first line must name the columns")
    names = [" ".join(name.split()) for name in header]  # a spreadsheet breaks long names into lines
    features, kept = wanted.choose(names, path.name)
    at = {name: names.index(name) for name in (*features, *kept)}
    pieces: list[np.ndarray] = []
    others: dict[str, list[str]] = {name: [] for name in kept}
    lines: list[int] = []
    faults = Faults()
    for begun, rows in _pieces(path.name, reader, len(names)):
        by_column = list(zip(*rows, strict=True))
        piece = np.empty((len(rows), len(features)), np.float32)
        for j, name in enumerate(features):
            piece[:, j] = numbers(by_column[at[name]], name, len(lines), faults)
        for name, cells in others.items():
            cells += [cell.strip() for cell in by_column[at[name]]]
        pieces.append(piece)
        lines += begun
    if not lines:
        raise FedpriorError(f"{path.name} names {len(names)} columns and has no rows below them")

    def place(row: int) -> str:
        return f"line {lines[row]}"

    faults.check(path.name, place, wanted.drop)
    return Table(path.name, tuple(names), tuple(features), np.concatenate(pieces), dict(others), place)


def _pieces(where: str, reader: Any, width: int) -> Iterator[tuple[list[int], list[list[str]]]]:
    """The rows of the file, some hundreds at a time, with the line in which each begins."""
    lines: list[int] = []
    rows: list[list[str]] = []
    while True:
        line = reader.line_num + 1
        row = next(reader, None)
        if rows and (row is None or len(rows) == ROWS_AT_ONCE):
            yield lines, rows
            lines, rows = [], []
        if row is None:
            return
        if not any(row):
            continue
        if len(row) != width:
            if not any(map(str.strip, row)):
                continue
            raise FedpriorError(
                f"line {line} of {where} has {len(row)} entries where the first line names {width} columns; an entry that "
                "holds the separator must stand in quotation marks"
            )
        lines.append(line)
        rows.append(row)


def _delimiter(path: Path, first: str) -> str:
    """A tab for .tsv; else what most often stands between the columns' names: a tab, semicolon or comma, outside quotes.

    Of two that are as frequent, the semicolon goes before the comma, which may be part of a name: Dose, mg;Age.
    """
    if path.name.lower().endswith((".tsv", ".tsv.gz")):
        return "\t"
    bare = re.sub(r'"[^"]*"', "", first)
    return max("\t;,", key=bare.count) if any(mark in bare for mark in "\t;,") else ","


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file as text; what keeps it from being read is told in one line."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        line = _first_undecodable(opener(path, "rb"))
        raise FedpriorError(
            f"{path.name} is not in UTF-8 (byte 0x{error.object[error.start]:02x} in line {line}; perhaps it is in Latin-1, "
            "UTF-16 or no text at all); save it as UTF-8"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FedpriorError(f"cannot unpack {path} ({first_line(error)}); fetch it again") from error


def _first_undecodable(file: Any) -> int:
    with file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return number
