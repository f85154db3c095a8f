"""The types that fields declare: which values one admits, and what may stand for such a value."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

UNIONS = (typing.Union, types.UnionType)


@functools.cache
def kinds(cls: type) -> Mapping[str, Any]:
    """The declared type of each field of a class.

    >>> from fedprior.methods.fedavg import FedAvg
    >>> kinds(FedAvg)["R"]
    <class 'int'>
    """
    names = [field.name for field in dataclasses.fields(cls)]
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):  # it names what only a type checker sees, or what is local to a function
        hints = {}
    return {name: hints.get(name, Any) for name in names}


def admits(kind: Any, value: Any) -> bool:
    """Whether a value is of a declared type, as far as that can be told; the entries of a collection are not looked at.

    A whole number is a float too, and so is an array of them, which may be traced; NumPy's numbers are numbers.

    >>> [admits(float, value) for value in (1, 0.5, True, "1")], [admits(int | None, value) for value in (1, 1.0, None)]
    ([True, True, False, False], [True, False, True])
    """
    origin, args = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in UNIONS:
        return any(admits(one, value) for one in args)
    if origin is typing.Literal:
        return any(type(one) is type(value) and one == value for one in args)
    if origin is bool:
        return isinstance(value, bool | np.bool_)
    if origin in (int, float):
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return whole or (origin is float and isinstance(value, numbers.Real | Array) and not isinstance(value, bool))
    if origin is Array:
        return isinstance(value, Array | np.ndarray)
    try:
        return not isinstance(origin, type) or isinstance(value, origin)
    except TypeError:  # a protocol that cannot be asked
        return True


def standing_for(kind: Any, value: Any) -> Any:
    """A value converted to its field's type: NumPy's numbers to Python's, whole numbers to floats, lists to tuples.

    >>> standing_for(float | None, 3), standing_for(tuple[int, ...], [1, 2]), standing_for(int, np.int64(2))
    (3.0, (1, 2), 2)
    """
    value = value.item() if isinstance(value, np.generic) else value
    options = typing.get_args(kind) if typing.get_origin(kind) in UNIONS else (kind,)
    if float in options and int not in options and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list) and not any(admits(one, value) for one in options):
        return tuple(value) if any(admits(one, tuple(value)) for one in options) else value
    return value


def in_words(kind: Any) -> str:
    """A type as errors name it.

    >>> in_words(float | None), in_words(tuple[int, ...])
    ('float or none', 'tuple[int, ...]')
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in UNIONS:
        return " or ".join(map(in_words, args))
    if origin is typing.Literal:
        return " or ".join(map(repr, args))
    if kind in (None, type(None)):
        return "none"
    return kind.__name__ if isinstance(kind, type) and not args else str(kind)
