"""The one error type a user is meant to see: what was given, what is valid, and the likely fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pydantic


class FedpriorError(ValueError):
    """A problem with the input, told in one line; the command line prints it and exits with code 2."""


def unknown(kind: str, given: str, valid: Iterable[str]) -> FedpriorError:
    """Build the error for a name that does not exist, with the nearest valid one.

    ``kind`` says what it is a name of and, after "in" or "of", where.

    >>> print(unknown("method", "fedavgg", ["fedavg", "local"]))
    unknown method 'fedavgg' (did you mean 'fedavg'?); valid: fedavg, local
    >>> print(unknown("key in task 'mine'", "round", ["rounds"]))
    unknown key 'round' in task 'mine' (did you mean 'rounds'?); valid: rounds
    """
    names = sorted(valid)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return FedpriorError(f"unknown {_named(kind, given)}{hint}; valid: {', '.join(names)}")


def _named(kind: str, given: str) -> str:
    """What does not exist, with its name beside what it is a name of."""
    where = re.search(" (in|of) ", kind)
    at = where.start() if where else len(kind)
    return f"{kind[:at]} '{given}'{kind[at:]}"


def one_line(
    error: pydantic.ValidationError,
    what: str,
    valid: Iterable[str],
    parts: Mapping[str, Iterable[str]] | None = None,
) -> FedpriorError:
    """Turn pydantic's report on some settings into an error of one line about the first thing that is wrong.

    ``what`` names the settings and ``valid`` their keys. ``parts`` gives the keys of settings within settings, by their
    path from the outside: ``{"data": ["source", "normalize"]}``.

    >>> import pydantic
    >>> model = pydantic.create_model("model", __config__=pydantic.ConfigDict(extra="forbid"), rounds=(int, 200))
    >>> try:
    ...     model(round=3)
    ... except pydantic.ValidationError as error:
    ...     print(one_line(error, "task 'mine'", model.model_fields))
    unknown key 'round' in task 'mine' (did you mean 'rounds'?); valid: rounds
    """
    first = error.errors()[0]
    *outer, _ = path = [str(part) for part in first["loc"]] or ["settings"]
    where, within = ".".join(path), ".".join(outer)
    if first["type"] == "extra_forbidden":
        keys = [f"{within}.{key}" for key in (parts or {}).get(within, ())] if outer else list(valid)
        kind = f"key in {what}"
        return unknown(kind, where, keys) if keys else FedpriorError(f"unknown {_named(kind, where)}; leave it out")
    if first["type"] == "missing":
        return FedpriorError(f"{what}: '{where}' is missing")
    text = repr(first["input"])
    given = "" if isinstance(first["input"], dict) else f" (given: {text[:200]}{'...' * (len(text) > 200)})"
    return FedpriorError(f"{what}: {where}: {first['msg'].lower()}{given}")


def first_line(error: BaseException) -> str:
    """What an error of another library says, or the error behind it: its type and its first line, cut short.

    >>> first_line(OSError("no such disk"))
    'OSError: no such disk'
    """
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause).splitlines()[0][:200] if str(cause) else 'no message'}"


# What moves a terminal's cursor or colours it, breaks a line, turns the direction of writing, or is half a character.
_CONTROL = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff]"
)


def printable(text: str, keep: str = "") -> str:
    r"""A text that may come from elsewhere as it can be shown: control characters, but those to ``keep``, as escapes.

    >>> print(printable("a\x1b[31mb\nc"))
    a\x1b[31mb\nc
    """
    return _CONTROL.sub(lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), text)
