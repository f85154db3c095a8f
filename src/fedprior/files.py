"""Files that are either the old ones or the whole new ones, and where things are cached. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.errors import FedpriorError

MOST_JSON = 64 * 2**20  # bytes; a thousand times what a run's settings take
DEEPEST = 50  # levels of settings within settings
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # a system without it has no such links to speak of


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
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in reason
    remedy = "free some space or choose another folder" if full else "choose a folder that can be written"
    return FedpriorError(f"cannot write {path}: {reason}; {remedy}")


def replace_file(path: Path, write: Callable[[Path], Any], mode: int | None = None) -> None:
    """Write a file so that it is either the old one or the whole new one: ``write(temporary path)``, sync, rename.

    It has the given ``mode``, or that which the system gives to any new file, whatever mode the writer sets: safetensors
    makes its files private. Several processes may do so at once: each has a temporary file of its own, and the last one
    stays.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as file:  # never through a link that somebody has put there
                if mode is None:
                    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                os.fchmod(file.fileno(), mode)  # before anything is in it
            write(temporary)
            if stat.S_IMODE(temporary.stat().st_mode) != mode:
                temporary.chmod(mode)
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


def plain(content: Any) -> Any:
    """Settings as JSON would give them back (tuples are lists)."""
    return json.loads(json.dumps(content))


def no_links(path: str, flags: int) -> int:
    """Open a file, as the ``opener`` of `open`, but not through a link that somebody has put in its place."""
    return os.open(path, flags | NO_LINKS, 0o666)


def read_bytes(path: Path, most: int, links: bool = False, name: str = "") -> bytes:
    """The content of a plain file of at most so many bytes; a pipe, which would wait, or a link is refused.

    ``links``: whether it may be reached by a link, as what users name themselves may. ``name``: what an error calls it.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if links else NO_LINKS))
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                raise OSError("it is no plain file; remove it")
            if about.st_size > most:
                raise OSError(f"it is larger than {most / 2**20:.0f} MiB, which no such file should be")
            with open(file, "rb", closefd=False) as stream:
                return stream.read()
        finally:
            os.close(file)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.ELOOP:
            reason = "it is a link to another file; put the file itself there"
        raise FedpriorError(f"cannot read {name or path}: {reason}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say what is wrong with the file."""
    content = parsed(str(path), json.loads, read_bytes(path, MOST_JSON))
    if not isinstance(content, dict):
        raise FedpriorError(f"{path} does not hold a JSON object")
    return content


def parsed(name: str, parse: Callable[[bytes], Any], data: bytes) -> Any:
    """What a file holds; what cannot be parsed, a number of thousands of digits or too deep a nesting is an error."""
    deep = FedpriorError(f"cannot read {name}: it is nested more than {DEEPEST} levels deep")
    try:
        content = parse(data)
    except RecursionError:
        raise deep from None
    except FedpriorError:
        raise
    except ValueError as error:
        raise FedpriorError(f"cannot read {name}: {error}") from error
    if is_deep(content):
        raise deep
    return content


def is_deep(content: Any) -> bool:
    """Whether lists and dictionaries lie within one another more deeply than any settings do.

    >>> is_deep({"a": [1, {"b": 2}]}), is_deep(json.loads("[" * 80 + "]" * 80))
    (False, True)
    """
    level = [content]
    for _ in range(DEEPEST + 1):
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [part for parts in inner for part in parts]
        if not level:
            return False
    return True


def digest(*parts: str) -> str:
    """The SHA-256 of texts, in hexadecimal."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def array_digest(array: np.ndarray) -> str:
    """The SHA-256 of an array's type, shape and content."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data  # of bfloat16 itself there is no buffer
    content = hashlib.sha256(raw).hexdigest()
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
