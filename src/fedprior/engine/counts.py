"""What was counted of a method is kept in the cache folder, until the package changes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path

from fedprior import registry
from fedprior.core.method import Method
from fedprior.errors import FedpriorError
from fedprior.files import cache_dir, digest, file_digest, read_json, write_json

Counts = dict[str, int]


@functools.cache
def _package() -> str:
    """A digest of the package's source, on every file of which a count may depend."""
    root = Path(__file__).parent.parent
    return digest(*(f"{path.relative_to(root)} {file_digest(path)}" for path in sorted(root.rglob("*.py"))))


def _place(method: Method, n_clients: int) -> Path | None:
    """The file of a method's counts; None where a part is not the package's: its source may change at any time."""
    settings = vars(method)
    is_plain = all(isinstance(value, str | int | float | None) for value in settings.values())
    if not type(method).__module__.startswith("fedprior.") or not is_plain or registry.ADDED & {*settings.values()}:
        return None
    key = digest(_package(), type(method).__qualname__, repr(sorted(settings.items())), str(n_clients))
    return cache_dir() / "counts" / f"{key[:32]}.json"


def kept_counts(method: Method, n_clients: int, count: Callable[[], Counts]) -> Counts:
    """What ``count`` gave for this method before, or what it gives now."""
    path = _place(method, n_clients)
    if path is not None:
        with contextlib.suppress(FedpriorError):  # not there, or damaged
            kept = read_json(path)
            if kept and all(isinstance(number, int) for number in kept.values()):
                return kept
    counted = count()
    if path is not None:
        with contextlib.suppress(FedpriorError):  # a folder that cannot be written
            write_json(path, counted)
    return counted
