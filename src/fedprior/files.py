"""Files that are either the old ones or the whole new ones, and where things are cached. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.errors import FedpriorError


def moment(where: str, path: Path) -> None:
    """Called at named moments of replacing a file, so that tests can kill the process there. Does nothing."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> FedpriorError:
    """The error of a file that cannot be written."""
    reason = getattr(error, "strerror", None) or str(error)
    return FedpriorError(f"cannot write {path}: {reason}; free some space or choose another folder with --out")


def replace_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file so that it is either the old one or the whole new one: ``write(temporary path)``, sync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            moment("written", path)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        moment("renamed", path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    replace_file(path, lambda p: p.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file."""
    write_text(path, json.dumps(content, indent=1, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say what is wrong with the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FedpriorError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise FedpriorError(f"{path} does not hold a JSON object")
    return content


def digest(*parts: str) -> str:
    """The SHA-256 of texts, in hexadecimal."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def array_digest(array: np.ndarray) -> str:
    """The SHA-256 of an array's type, shape and content."""
    content = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    return digest(array.dtype.str, str(array.shape), content)


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of the names and bytes of arrays, whatever their order."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode() + arrays[name].tobytes())
    return sha.hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def cache_dir() -> Path:
    """Where decoded data and compiled programs are kept: FEDPRIOR_CACHE, or .cache/fedprior in the home folder."""
    return Path(os.environ.get("FEDPRIOR_CACHE") or Path.home() / ".cache" / "fedprior")
