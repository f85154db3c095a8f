"""Arrays that a user gives: numbers, and the names of clients and classes, which are kept beside the numbers that stand for
them in the mathematics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError, first_line, printable

FAR = 1000  # a label above both this and ten times the number of labels is taken for an error
LONGEST = 100_000  # characters of a client's name; Python reads no table with much longer entries


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
        if isinstance(given, str) and (flaw := _flaw(given)):
            raise FedpriorError(f"client_id of sample {k} {flaw}; rename the client")
        ids.append(given)
    written: dict[str, int | str] = {}
    for one in dict.fromkeys(ids):
        if (other := written.setdefault(str(one), one)) is not one:
            raise FedpriorError(f"clients {other!r} and {one!r} look the same in records; rename one of them")
    return ids


def _flaw(name: str) -> str | None:
    """What keeps a name from being written down."""
    if len(name) > LONGEST:
        return f"has {len(name):,} characters; valid: at most {LONGEST:,}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"is {name!r}, which holds half a character and cannot be written to a file"
    return None


def as_flags(values: npt.ArrayLike, what: str) -> npt.NDArray[np.bool_]:
    """True or False, or 1 or 0, for each sample; a text such as "train", which Python takes for True, is refused.

    >>> as_flags([0, 1], "is_test")
    array([False,  True])
    """
    given = as_array(values, what)
    if given.dtype.kind == "O":
        given = as_array(given.tolist(), what)
    is_flag = np.isin(given, (0, 1)) if given.dtype.kind in "biuf" else np.zeros(given.shape, bool)
    if not is_flag.all():
        k = int(np.flatnonzero(~is_flag.reshape(len(is_flag), -1).all(1))[0])
        raise FedpriorError(f"{what} of sample {k} is {given[k].tolist()!r}; valid: True and False, or 1 and 0")
    return given.astype(bool)


def as_array(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    """An array of one entry for each sample; lists of several lengths are refused."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise FedpriorError(f"{what} must have one entry for each sample ({first_line(error)})") from error
    if not given.ndim:
        raise FedpriorError(f"{what} is {values!r}; give one entry for each sample")
    return given


def require_finite(x: npt.NDArray[Any], of: str = "") -> None:
    """Refuse samples [n, ...] of which one holds NaN or an infinite number; ``of``: what they are samples of."""
    if not (finite := np.isfinite(x)).all():
        bad = int(np.flatnonzero(~finite.reshape(len(x), -1).all(1))[0])
        raise FedpriorError(f"sample {bad}{of} has a value that is not finite; remove or repair it")


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
        for name in names.tolist():
            if printable(name) != name:
                where = place(given.tolist().index(name))
                raise FedpriorError(f"label {name!r} of {where} holds what cannot be printed; rename it")
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
