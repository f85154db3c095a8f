"""The one error type a user is meant to see: what was given, what is valid, and the likely fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedpriorError(ValueError):
    """A problem with the input, told in one line; the command line prints it and exits with code 2."""


def unknown(kind: str, given: str, valid: Iterable[str]) -> FedpriorError:
    """Build the error for a name that does not exist, with the nearest valid one.

    >>> print(unknown("method", "fedavgg", ["fedavg", "local"]))
    unknown method 'fedavgg' (did you mean 'fedavg'?); valid: fedavg, local
    """
    names = sorted(valid)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return FedpriorError(f"unknown {kind} '{given}'{hint}; valid: {', '.join(names)}")
