"""Trees of arrays as Flower's records and back. Structure never travels: the receiver knows which tree it expects.

What a stranger sends is looked at before anything of its size is made: names, types, shapes and lengths must be those of the
expected tree, and every number must be finite.
"""

from __future__ import annotations

import io
import math
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord

from fedprior.flower.messages import Shareable
from fedprior.records.checkpoint import as_data, named, pack, unpack

T = TypeVar("T")
HEADER = 1024  # bytes that the description of an array may take


class BadRecord(Shareable):
    """A record that is not the tree that was expected."""


def to_record(tree: Any) -> ArrayRecord:
    """A tree as named arrays."""
    return ArrayRecord({name: Array(array) for name, array in pack(tree).items()})


def from_record(record: ArrayRecord, like: T, what: str) -> T:
    """The tree behind a record; ``like`` has its structure, shapes and types, and ``what`` names it in errors."""
    wanted = {name: as_data(leaf) for name, leaf in named(like).items()}
    if odd := sorted(set(wanted) ^ set(record)):
        raise BadRecord(f"{what} does not hold the arrays that this model expects (first difference: {odd[0][:80]!r})")
    return unpack({name: _array(record[name], name, leaf, what) for name, leaf in wanted.items()}, like)


def _array(given: Array, name: str, leaf: Any, what: str) -> np.ndarray:
    """The content of an array of known shape and type."""
    shape, dtype = tuple(leaf.shape), np.dtype(leaf.dtype)
    size = math.prod(shape) * dtype.itemsize
    if given.stype != "numpy.ndarray" or not size < len(given.data) <= size + HEADER:
        raise BadRecord(f"{what}: {name} holds {len(given.data)} bytes, where {dtype}{list(shape)} takes {size}")
    content = io.BytesIO(given.data)
    try:
        major, _ = np.lib.format.read_magic(content)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        described = read(content, max_header_size=HEADER)
    except Exception as error:  # NumPy evaluates the description, and what a stranger wrote can fail in many ways
        raise BadRecord(f"{what}: {name} is no array") from error
    if described != (shape, False, dtype) and described != (shape, True, dtype):
        raise BadRecord(f"{what}: {name} is {described[2]}{list(described[0])}, where {dtype}{list(shape)} is expected")
    data = given.data[content.tell() :]
    if len(data) != size:
        raise BadRecord(f"{what}: {name} holds {len(data)} bytes of numbers, where {size} are expected")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if described[1] else "C")
    if not np.all(np.isfinite(array)):
        raise BadRecord(f"{what}: {name} holds numbers that are not finite")
    return np.ascontiguousarray(array).reshape(shape)
