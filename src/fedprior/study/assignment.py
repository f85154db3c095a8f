"""Settings as text, as keys with dots, and as Python has them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.files import DEEPEST, is_deep

ALIASES = {"lambda": "lam"}  # a Python field cannot be called lambda
RENAMED = {"chunk": "clients_per_vmap"}  # old keys, refused with the new name


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read ``key=value``; the value is a TOML value, or else a plain string.

    >>> parse_assignment("lambda=15"), parse_assignment("partition.labels=released")
    (('lam', 15), ('partition.labels', 'released'))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise FedpriorError(f"'{text}' is not of the form key=value")
    try:
        content = tomllib.loads(f"value = {value}")["value"]
    except RecursionError:
        content = None
    except ValueError:  # no TOML, or a number of thousands of digits
        content = value.strip()
    if content is None or is_deep(content) or key.count(".") > DEEPEST:
        raise FedpriorError(f"'{key[:40]}' is nested more than {DEEPEST} levels deep")
    return current_key(key), content


def current_key(key: str) -> str:
    """A key as it is called in this version; an old one is refused with its new name."""
    if key in RENAMED:
        raise FedpriorError(f"'{key}' is now called '{RENAMED[key]}'")
    return ALIASES.get(key, key)


def native(value: Any) -> Any:
    """A setting as Python has it: NumPy's numbers become Python's own, in lists and tables too.

    >>> native({"lam": np.float32(5), "seeds": [np.int64(2)]})
    {'lam': 5.0, 'seeds': [2]}
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: native(inner) for key, inner in value.items()}
    return [native(inner) for inner in value] if isinstance(value, list) else value


def format_value(value: Any) -> str:
    """A value as ``parse_assignment`` reads it.

    >>> format_value(15.0), format_value(0.1), format_value(True), format_value("w"), format_value("15")
    ('15', '0.1', 'true', 'w', '"15"')
    """
    if isinstance(value, str):
        return value if parse_assignment(f"key={value}")[1] == value else json.dumps(value)
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return json.dumps(value)


def assign(content: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of nested settings with the value at ``partition.clients``, say, replaced."""
    first, _, rest = key.partition(".")
    if not rest:
        return {**content, first: value}
    inner = content.get(first) or {}
    if not isinstance(inner, dict):
        raise FedpriorError(f"'{key}': '{first}' is a single value and has no parts")
    return {**content, first: assign(inner, rest, value)}
