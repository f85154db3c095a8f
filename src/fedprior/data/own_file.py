"""From a file and the names of its columns to a source: samples, labels, the clients that hold them, and their split."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.data.cells import is_missing, whole_or_text
from fedprior.data.columns import Columns, Table
from fedprior.data.given import named_labels
from fedprior.data.preparation import Preparation
from fedprior.data.sources import Source, from_arrays
from fedprior.data.table_file import read_table
from fedprior.errors import FedpriorError
from fedprior.files import digest

# What the column of the split may say, in small letters, and whether it stands for a test sample.
PARTS: tuple[dict[str, bool], ...] = (
    {"train": False, "test": True},
    {"false": False, "true": True},
    {"0": False, "1": True},
)


def from_file(
    path: Path,
    *,
    label: str,
    client: str | None = None,
    split: str | None = None,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    everyones: bool = True,
) -> Source:
    """Read a file by the names of its columns. The fingerprint is of what was read: the file may be moved, or packed.

    ``everyones``: whether it holds all the data there is, and not one site's, which may well be of a single class.
    """
    named = tuple(name for name in (label, client, split) if name is not None)
    chosen = None if features is None else tuple(features)
    table = read_table(path, Columns(chosen, named, ignore=tuple(ignore)))
    for name, needs in ((label, "a label"), (client, "a client"), (split, "to be for training or for testing")):
        if name is not None:
            _check_whole(table, name, needs)
    source = from_arrays(
        table.x,
        _labels(table, label, everyones),
        None if client is None else np.array(whole_or_text(table.others[client]), object),
        is_test=None if split is None else _is_test(table, split),
        name="file",  # which is part of the fingerprint
    )
    return dataclasses.replace(
        source,
        name=path.name,
        fingerprint=digest("file", json.dumps(table.columns), source.fingerprint),
        preparation=Preparation(columns=table.columns, shape=table.x.shape[1:]),
    )


def _check_whole(table: Table, column: str, needs: str) -> None:
    rows = [k for k, value in enumerate(table.others[column]) if is_missing(value)]
    if rows:
        many = f"{len(rows):,} missing values" if len(rows) > 1 else "1 missing value"
        raise FedpriorError(
            f"{many} in column '{column}' of {table.where}, the first in {table.place(rows[0])}; every row needs {needs}: "
            "remove these rows or fill them in"
        )


def _labels(table: Table, column: str, everyones: bool) -> npt.NDArray[Any]:
    """Classes as whole numbers or texts; a quantity is refused, and of everyone's data a column of ids or a single class."""
    values = _whole_decimals(table, column)
    classes = set(values)
    if everyones and len(classes) == 1:
        raise FedpriorError(
            f"column '{column}' of {table.where} holds one class only ({values[0]!r}); there is nothing to tell apart"
        )
    if everyones and len(classes) > max(2, len(values) // 2):
        raise FedpriorError(
            f"column '{column}' of {table.where} holds {len(classes):,} different labels in {len(values):,} rows; "
            "name the column of classes as data.label"
        )
    for k, value in enumerate(values):
        if isinstance(value, int) and abs(value) >= 2**31:
            raise FedpriorError(
                f"column '{column}' of {table.where} has {value} in {table.place(k)}; give classes smaller numbers or texts"
            )
    labels = np.array(values)
    named_labels(labels, None, table.place)  # names the row of a label that is far from the others
    return labels


def _whole_decimals(table: Table, column: str) -> list[int | str]:
    """The labels of a column, of which 1.0 is 1; any other decimal is a quantity, which is no class."""
    values = table.others[column]
    if all(isinstance(value, str) for value in values):
        if not all(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) for value in values) or "." not in "".join(values):
            return whole_or_text(values)
        values = [float(value) for value in values]
    for k, value in enumerate(values):
        if isinstance(value, float) and not value.is_integer():
            raise FedpriorError(
                f"column '{column}' of {table.where} has {value:g} in {table.place(k)}; a label is a class, by a whole "
                "number or a text, and no quantity"
            )
    return whole_or_text(values)


def _is_test(table: Table, column: str) -> npt.NDArray[np.bool_]:
    says = [str(value).lower() for value in table.others[column]]
    words: Callable[[dict[str, bool]], bool] = set(says).issubset
    for meaning in PARTS:
        if words(meaning):
            return np.array([meaning[word] for word in says])
    known = next((meaning for meaning in PARTS if says[0] in meaning), PARTS[0])
    k = next(k for k, word in enumerate(says) if word not in known)
    raise FedpriorError(
        f"column '{column}' of {table.where} says {table.others[column][k]!r} in {table.place(k)}; valid: train and test, "
        "or true and false (or 1 and 0) for whether a row is for testing"
    )
