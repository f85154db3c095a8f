"""Arrays that a user gives: numbers, and the names of clients and classes, which are kept beside the numbers that stand for
them in the mathematics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError, first_line

FAR = 1000  # a label above this and ten times the number of labels is taken for an error


def as_numbers(values: npt.ArrayLike, what: str, kind: type[np.float32] | type[np.int32]) -> npt.NDArray[Any]:
    """An array of numbers of this kind; anything else, or what would not fit, is refused."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        reason = first_line(error)
        raise FedpriorError(f"{what} must be an array of numbers, all rows of one length ({reason})") from error
    if given.ndim == 0 or given.dtype.kind not in "biuf":
        raise FedpriorError(f"{what} must be an array of numbers; got shape {given.shape}, type {given.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is reported by the caller, or below
        array = given.astype(kind)
    if kind is np.int32 and not np.array_equal(array, given):
        bad = given[array != given][0]
        raise FedpriorError(f"{what} must hold whole numbers of at most 32 bits; got {bad}")
    return array


def client_ids(who: npt.NDArray[Any]) -> list[int | str]:
    """The clients of all samples as whole numbers or strings; what is neither is refused.

    >>> client_ids(np.array([2.0, 1.0])), client_ids(np.array(["St. C", "007"]))
    ([2, 1], ['St. C', '007'])
    """
    ids: list[int | str] = []
    for k, given in enumerate(who.tolist()):
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if isinstance(given, bool) or not isinstance(given, int | str) or given == "":
            raise FedpriorError(
                f"client_id of sample {k} is {given!r}; say who holds the sample, by a whole number or a text"
            )
        ids.append(given)
    written: dict[str, int | str] = {}
    for one in dict.fromkeys(ids):
        if (other := written.setdefault(str(one), one)) is not one:
            raise FedpriorError(f"clients {other!r} and {one!r} look the same in records; rename one of them")
    return ids


def named_labels(
    y: npt.ArrayLike, n_classes: int | None, place: Callable[[int], str] = lambda k: f"sample {k}"
) -> tuple[npt.NDArray[np.int32], tuple[int | str, ...] | None]:
    """Labels as numbers from 0, and what 0, 1, ... are called; None where the labels are such numbers already.

    ``place``: what the k-th label is called in an error.

    >>> named_labels(["ill", "well", "ill"], None)
    (array([0, 1, 0], dtype=int32), ('ill', 'well'))
    >>> named_labels([1, 2, 3], None)[1], named_labels([0, 2], None)[1]
    ((1, 2, 3), None)
    """
    given = np.asarray(y)
    if given.ndim == 1 and given.dtype.kind in "OUS" and all(isinstance(label, str) for label in given.tolist()):
        if n_classes is not None:
            raise FedpriorError(f"labels such as {str(given[0])!r} are texts, which need no n_classes; leave it out")
        names, numbers = np.unique(given.astype(str), return_inverse=True)
        return numbers.astype(np.int32), tuple(names.tolist())
    labels = as_numbers(y, "y", np.int32)
    if n_classes is not None or labels.ndim != 1 or not len(labels):
        return labels, None
    names, numbers = np.unique(labels, return_inverse=True)
    if len(names) > 1 and names[-1] > max(FAR, 10 * len(names)):
        at = int(np.argmax(labels))
        raise FedpriorError(
            f"label {names[-1]} of {place(at)} is far from the others ({json.dumps(names[:-1][:5].tolist())[1:-1]}, ...); "
            "correct it, or give labels as texts if it is meant"
        )
    return (labels, None) if names[0] == 0 else (numbers.astype(np.int32), tuple(names.tolist()))
