"""What stands in the cells of a table: numbers, and what keeps a cell from being one, told by row and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError

MISSING = {"", "na", "n/a", "nan", "null", "#n/a"}  # in small letters
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # "007" is a name, and so is what has more digits than 64 bits hold
_SEPARATED = re.compile(r"[-+]?(?=.*\d)[\d.,'\u2019_\s]+([eE][-+]?\d+)?")  # of what `float` does not read
_LARGEST = float(np.finfo(np.float32).max)

Place = Callable[[int], str]  # what the k-th row is called, such as "line 17"


class Fault(NamedTuple):
    """Entries of one kind in one column that are no numbers."""

    entries: int
    row: int  # of the first
    found: str  # in it


class Faults:
    """The entries of a table's columns that are no numbers, column by column and by kind: the worst kind is told."""

    KINDS = ("text", "separated", "infinite", "missing")  # the worst first

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Fault]] = {}

    def add(self, column: str, kind: str, row: int, found: str, count: int = 1) -> None:
        """Note entries of a kind, the first of which is at ``row``."""
        kinds = self.found.setdefault(column, {})
        before = kinds.get(kind, Fault(0, row, found))
        kinds[kind] = before._replace(entries=before.entries + count)

    def check(self, where: str, place: Place, drop: str) -> None:
        """Raise an error that names the first column with such entries, how many there are, and where the first is.

        ``drop`` says how to do without a column.
        """
        if not self.found:
            return
        column, kinds = next(iter(self.found.items()))
        kind = next(kind for kind in self.KINDS if kind in kinds)
        fault, in_column = kinds[kind], f"column {column!r} of {where}"
        at, number = place(fault.row), f"{fault.entries:,} such entr{'ies' if fault.entries > 1 else 'y'}"
        others = [repr(name) for name in list(self.found)[1:6]]
        too = f" (and see to column{'s' * (len(others) > 1)} {', '.join(others)})" if others else ""
        raise FedpriorError(
            {
                "text": f"{in_column} holds text ({fault.found!r} in {at}; {number}); encode it as numbers, or {drop}",
                "separated": f"{in_column} has {fault.found!r} in {at}, which is no number as it is written ({number}); "
                "write 1234.5, with a point and nothing between thousands",
                "infinite": f"{in_column} has {fault.found!r} in {at}, which is infinite or too large ({number}); "
                f"remove these rows, repair them, or {drop}",
                "missing": f"{fault.entries:,} missing value{'s' if fault.entries > 1 else ''} in {in_column}, the first in "
                f"{at}; remove these rows, fill them in, or {drop}",
            }[kind]
            + too
        )


def numbers(cells: Sequence[str], column: str, first_row: int, faults: Faults) -> npt.NDArray[np.float32]:
    """The numbers that some cells of a column hold; any other cell is noted in `faults` and becomes 0.

    >>> numbers(["1.5", " 2", "1e3"], "dose", 0, Faults())
    array([   1.5,    2. , 1000. ], dtype=float32)
    """
    try:
        if "_" not in "".join(cells):  # Python reads 1_000, other programs do not
            values = np.fromiter(map(float, cells), np.float64, len(cells))
            if np.all(np.abs(values) <= _LARGEST):
                return values.astype(np.float32)
    except ValueError:
        pass
    for k, cell in enumerate(cells):
        if kind := _fault_of(cell):
            faults.add(column, kind, first_row + k, cell)
    return np.zeros(len(cells), np.float32)


def _fault_of(cell: str) -> str | None:
    if cell.strip().lower() in MISSING:
        return "missing"
    try:
        value = float(cell)
    except ValueError:
        return "separated" if _SEPARATED.fullmatch(cell.strip()) else "text"
    if "_" in cell:
        return "separated"
    if value != value:  # -nan
        return "missing"
    return None if abs(value) <= _LARGEST else "infinite"


def array_numbers(values: npt.NDArray[Any], column: str, faults: Faults) -> npt.NDArray[np.float32]:
    """An array of samples [n, ...] as 32-bit numbers; what is no finite number is noted by its row."""
    if values.dtype.kind not in "biuf":
        if len(values):
            faults.add(column, "text", 0, str(values.flat[0])[:40], len(values))
        return np.zeros(values.shape, np.float32)
    with np.errstate(over="ignore"):
        converted = values.astype(np.float32)
    for kind, wrong in (("missing", np.isnan(values)), ("infinite", np.isinf(converted))):
        if count := int(wrong.sum()):
            row = int(np.flatnonzero(wrong.reshape(len(values), -1).any(1))[0])
            faults.add(column, kind, row, str(values[row][wrong[row]].flat[0]), count)
    return converted


def is_missing(value: object) -> bool:
    """Whether an entry of a column of names stands for none."""
    return value is None or value != value or (isinstance(value, str) and value.strip().lower() in MISSING)


def whole_or_text(values: Sequence[Any]) -> list[int | str]:
    """Names of clients or classes: whole numbers if all of them are, else texts as they are written.

    >>> whole_or_text(["3", "12"]), whole_or_text(["3", "007"]), whole_or_text([1.0, 2.0])
    ([3, 12], ['3', '007'], [1, 2])
    """
    values = [value.strip() if isinstance(value, str) else value for value in values]
    if all(isinstance(value, str) for value in values):
        return [int(value) for value in values] if all(map(WHOLE.fullmatch, values)) else list(values)
    if all(isinstance(value, int) or (isinstance(value, float) and value.is_integer()) for value in values):
        return [int(value) for value in values]
    return [str(value) for value in values]
