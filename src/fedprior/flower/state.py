"""A site's lasting state on its own disk: ``<state folder>/<experiment>/<client>/<name>.safetensors``.

The server names the state that a round starts from and the one that it leaves behind. A state that the server never
accepted is therefore never read, whoever wrote it: a process that outlived its node, or a reply that was lost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import safetensors
import safetensors.numpy

from fedprior.errors import FedpriorError
from fedprior.files import arrays_digest, cannot_write, replace_file, writing
from fedprior.records.checkpoint import pack, unpack

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class StateLost(FedpriorError):
    """A site lacks the state from which the server wants it to go on."""


def as_file_name(client: str) -> str:
    """A client's name as that of a file or folder, whatever characters it has.

    >>> as_file_name("../St. C/é"), as_file_name("..")
    ('%2E%2E%2FSt%2E%20C%2F%C3%A9', '%2E%2E')
    """
    return quote(client, safe="").replace(".", "%2E")


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

    def _path(self, name: str) -> Path:
        return self.folder / f"{_checked(name)}.safetensors"

    def _mark(self, name: str, arrays: dict[str, Any]) -> dict[str, str]:
        whose = f"{self.experiment}/{self.client}/{name}"
        return {"whose": whose, "sha256": arrays_digest(arrays)}

    def write(self, name: str, tree: Any) -> None:
        """Keep a state under a name, readable by its owner alone."""
        arrays, path = pack(tree), self._path(name)
        with writing(path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

        try:
            content = safetensors.numpy.save(arrays, metadata=self._mark(name, arrays))
            replace_file(path, lambda temporary: temporary.write_bytes(content), mode=0o600)
        except safetensors.SafetensorError as error:
            raise cannot_write(path, error) from error

    def read(self, name: str, like: T) -> T:
        """The state of a name; one that is missing, damaged or another's is lost."""
        path = self._path(name)
        try:
            with safetensors.safe_open(path, "np") as file:
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (it is no mapping)
                mark = file.metadata()
        except (OSError, safetensors.SafetensorError) as error:
            raise self._lost(f"cannot be read ({error})", path) from error
        if mark != self._mark(name, arrays):
            raise self._lost("is damaged, or another client's", path)
        try:
            return unpack(arrays, like)
        except FedpriorError as error:
            raise self._lost(f"does not fit ({error})", path) from error

    def _lost(self, why: str, path: Path) -> StateLost:
        return StateLost(
            f"the state of client {self.client!r} that the server asks for, {path}, {why}; bring the file back from a copy "
            "of the state folder, and the site takes part again in the next round"
        )

    def sweep(self, begin: str) -> None:
        """Remove the states of rounds before that of ``begin``, which the server has accepted.

        Those of the same round and of later ones stay: of several messages of a round, the server may have accepted any.
        """
        if not (at := _round(begin)):
            return
        for path in self.folder.glob("*.safetensors*"):
            if (t := _round(path.name)) is not None and t < at:
                path.unlink(missing_ok=True)


def _round(name: str) -> int | None:
    """The round that a state is of, by its name.

    >>> _round("00000012-a1b2"), _round("notes.txt")
    (12, None)
    """
    found = re.match(r"([0-9]{8})-", name)
    return None if found is None else int(found[1])


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise FedpriorError(f"the server names a state or an experiment {name[:100]!r}, which is no valid name")
    return name
