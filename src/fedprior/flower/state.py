"""A site's lasting state on its own disk: ``<state folder>/<experiment>/<client>/<name>.safetensors``.

The server names the state that a round starts from and the one that it leaves behind. A state that the server never
accepted is therefore never read, whoever wrote it: a process that outlived its node, or a reply that was lost.

Where a state is lost for good, the site's owner may let the site begin anew, as a newcomer. That is said of this one state,
by a file beside it, ``<name>.rejoin``: it cannot be meant of another, nor act a second time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import safetensors
import safetensors.numpy

from fedprior.errors import FedpriorError
from fedprior.files import arrays_digest, replace_file
from fedprior.records.checkpoint import pack, read_arrays, unpack

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
STATE, REJOIN = ".safetensors", ".rejoin"


class StateLost(FedpriorError):
    """A site lacks the state from which the server wants it to go on."""

    may_rejoin = False  # whether the site's owner wants it to begin anew


def as_file_name(client: str) -> str:
    """A client's name as that of a file or folder, whatever characters it has.

    >>> as_file_name("../St. C/é"), as_file_name("..")
    ('%2E%2E%2FSt%2E%20C%2F%C3%A9', '%2E%2E')
    """
    return quote(client, safe="").replace(".", "%2E")


@contextlib.contextmanager
def keeping(path: Path) -> Iterator[None]:
    """Turn the refusal of a site's disk into an error that says what its owner can do."""
    try:
        yield
    except (OSError, FedpriorError, safetensors.SafetensorError) as error:
        cause = error.__cause__ or error
        reason = getattr(cause, "strerror", None) or str(cause)
        raise FedpriorError(
            f"cannot write {path}: {reason}; free some space, or start the node with another state-dir and bring what is "
            "in this one along; the site takes part again in the next round"
        ) from error


@dataclass(frozen=True)
class Store:
    """The states of one client in one experiment."""

    root: Path
    experiment: str
    client: str

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.root / _checked(self.experiment) / as_file_name(self.client)

    @property
    def model(self) -> Path:
        """Where the client's owner finds its newest personal model."""
        return self.root / f"{as_file_name(self.client)}-{_checked(self.experiment)}{STATE}"

    def path(self, name: str) -> Path:
        """The file of a state."""
        return self.folder / f"{_checked(name)}{STATE}"

    def _mark(self, name: str, arrays: dict[str, Any]) -> dict[str, str]:
        whose = f"{self.experiment}/{self.client}/{name}"
        return {"whose": whose, "sha256": arrays_digest(arrays)}

    def write(self, name: str, tree: Any) -> None:
        """Keep a state under a name, readable by its owner alone."""
        arrays, path = pack(tree), self.path(name)
        with keeping(path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            content = safetensors.numpy.save(arrays, metadata=self._mark(name, arrays))
            replace_file(path, lambda temporary: temporary.write_bytes(content), mode=0o600)

    def arrays(self, name: str) -> dict[str, Any]:
        """What the state of a name holds; one that is missing, damaged or another's is lost."""
        path = self.path(name)
        try:
            there, content = path.exists(), read_arrays(path)
        except OSError as error:
            raise self._lost(f"cannot be read ({error.strerror})", path) from error
        if content is None:
            raise self._lost("is damaged, or cannot be read" if there else "is not there", path)
        arrays, mark = content
        if mark != self._mark(name, arrays):
            raise self._lost("is damaged, or another client's", path)
        return arrays

    def read(self, name: str, like: T) -> T:
        """The state of a name, which has the structure, shapes and types of ``like``; else it is lost."""
        arrays = self.arrays(name)
        try:
            return unpack(arrays, like)
        except FedpriorError as error:
            raise self._lost(f"does not fit ({error})", self.path(name)) from error

    def _lost(self, why: str, path: Path) -> StateLost:
        return StateLost(
            f"the state of client {self.client!r} that the server asks for, {path}, {why}; bring the file back from a copy "
            "of the state folder, and the site takes part again in the next round"
        )

    def marker(self, name: str) -> Path:
        """The file by which the site's owner says that it shall begin anew, now that this state is lost."""
        return self.path(name).with_suffix(REJOIN)

    def may_rejoin(self, name: str) -> bool:
        """Whether the site's owner has said so."""
        return self.marker(name).is_file()

    def sweep(self, keep: str) -> None:
        """Remove the states of rounds before that of ``keep``, which the server never asks for again.

        Those of the same round and of later ones stay: of several messages of a round, the server may have accepted any.
        """
        if not (at := round_of(keep)):
            return
        for path in (*self.folder.glob(f"*{STATE}*"), *self.folder.glob(f"*{REJOIN}*")):
            if (t := round_of(path.name)) is not None and t < at:
                with contextlib.suppress(OSError):  # it takes space, and does no other harm
                    path.unlink()


def round_of(name: str) -> int | None:
    """The round that a state is of, by its name.

    >>> round_of("00000012-a1b2"), round_of("notes.txt")
    (12, None)
    """
    found = re.match(r"([0-9]{8})-", name)
    return None if found is None else int(found[1])


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise FedpriorError(f"the server names a state or an experiment {name[:100]!r}, which is no valid name")
    return name
