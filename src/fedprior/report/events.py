"""Numbers as TensorBoard's event files, without TensorBoard: one folder per run, one scalar per average of a metric.

An event file is a sequence of records (length, its checksum, content, its checksum); the content is a protocol buffer of
which three fields are needed: the time (1), the step (2) and a summary (5) of values, each with a tag (1) and a number (2).
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from fedprior.files import writing
from fedprior.records.schema import Row

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, its bits reversed


@cache
def _remainders() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ _POLYNOMIAL * (byte & 1)
        found.append(byte)
    return tuple(found)


def checksum(data: bytes) -> int:
    """CRC-32C.

    >>> hex(checksum(b"123456789"))
    '0xe3069283'
    """
    table, value = _remainders(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    """The checksum as the format stores it: rotated, with a constant added, so that one of a checksum is no fixed point."""
    value = checksum(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _number(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes: its number and kind, its length, its content."""
    return _number(number << 3 | 2) + _number(len(content)) + content


def _single(value: float) -> bytes:
    """A number in single precision, in which a large one may be infinite."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def event(at: float, step: int, values: Mapping[str, float]) -> bytes:
    """An event with one scalar per tag."""
    scalars = (_field(1, tag.encode()) + b"\x15" + _single(value) for tag, value in values.items())
    summary = b"".join(_field(1, scalar) for scalar in scalars)
    return b"\x09" + struct.pack("<d", at) + b"\x10" + _number(step) + _field(5, summary)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + _masked(length) + content + _masked(content)


class EventFiles:
    """The event files of a study's runs, each in a folder ``root/task/row/seed`` of its own.

    A file is open only while something is added: a study may have more runs than a process may have open files.
    """

    def __init__(self, root: Path):
        self._root, self._files = root, dict[str, Path]()
        with writing(root):
            root.mkdir(parents=True, exist_ok=True)

    def add(self, run: str, rows: Iterable[Row]) -> None:
        """Write what evaluations gave; the tag of a number says its metric, model, data and average over clients."""
        by_round: dict[int, dict[str, float]] = {}
        for row in rows:
            values = {f"{name}/{row.model} {row.data} {row.average}": value for name, value in row.values.items()}
            by_round.setdefault(row.round, {}).update(values)
        if not by_round:
            return
        with writing(self._root / run):
            if run not in self._files or not self._files[run].exists():
                self._files[run] = self._begun(self._root / run)
            with open(self._files[run], "ab") as stream:
                stream.writelines(_record(event(time.time(), t, values)) for t, values in by_round.items())

    @staticmethod
    def _begun(folder: Path) -> Path:
        """A new file, beside those of earlier times, with the event that every such file begins with."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"events.out.tfevents.{time.time_ns()}.fedprior"
        with open(path, "xb") as stream:
            stream.write(_record(b"\x09" + struct.pack("<d", time.time()) + _field(3, b"brain.Event:2")))
        return path
