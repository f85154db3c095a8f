"""One way to give things names: methods, models, data sets, partitions, priors, means, selections, metrics, wrappers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, cast

from fedprior.errors import FedpriorError, unknown

T = TypeVar("T")
ADDED: set[str] = set()  # the names, of whatever kind, that this process has registered: what they stand for may change


class Registry(Generic[T]):
    """Names of one kind of thing, in the order in which they are listed to users.

    An entry may be given as "module:attribute", which is imported when it is first asked for.

    >>> shapes = Registry("shape", {"square": 4, "triangle": 3})
    >>> shapes.register("star", 10)
    10
    >>> shapes.find("square"), "star" in shapes, list(shapes)
    (4, True, ['square', 'triangle', 'star'])
    >>> shapes.find("sqare")
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: unknown shape 'sqare' (did you mean 'square'?); valid: square, star, triangle
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str] | None = None):
        self.kind = kind
        self._entries: dict[str, T | str] = dict(entries or {})

    def register(self, name: str, entry: T, *, replace: bool = False) -> T:
        """Add an entry under a new name, for this process; ``replace`` allows a name that is taken."""
        if name in self._entries and not replace:
            raise FedpriorError(f"there is a {self.kind} '{name}' already; choose another name")
        self._entries[name] = entry
        ADDED.add(name)
        return entry

    def find(self, name: str) -> T:
        """The entry of a name; an unknown one is an error that lists the valid names."""
        if not isinstance(name, str) or name not in self._entries:
            raise unknown(self.kind, str(name), self._entries)
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(importlib.import_module(module), attribute)
        return cast(T, entry)

    def names(self) -> list[str]:
        """All names, in order."""
        return list(self._entries)

    def items(self) -> list[tuple[str, T]]:
        """All names with their entries, in order."""
        return [(name, self.find(name)) for name in self._entries]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)
