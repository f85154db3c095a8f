"""Only one process at a time works in a run's folder; the lock says which.

The system gives a lock up when its process ends, however that happens, so that one left behind by a dead process is simply
taken over. Where the system has no such locks (Windows), nothing is locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fedprior.errors import FedpriorError
from fedprior.files import read_json, writing

if sys.platform != "win32":
    import fcntl

NAME = "lock"
LOOK = 0.1  # seconds; whoever checks who holds a folder (`holder`) shares its lock for far less than that


@contextlib.contextmanager
def hold(folder: Path, seconds: float = 0.0) -> Iterator[None]:
    """Keep all others out of a folder; if another process is in it, and does not leave within so many seconds, say who."""
    path, is_new = folder / NAME, not folder.exists()
    if sys.platform == "win32":
        yield
        return
    with writing(path):
        end = time.monotonic() + max(seconds, LOOK)
        while (file := _take(path)) is None and time.monotonic() < end:
            time.sleep(LOOK / 4)
    if file is None:
        raise FedpriorError(f"{folder} is in use by {_who(path)}; wait until it ends, or use another --out")
    try:
        about = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with writing(path):
            os.ftruncate(file, 0)
            os.write(file, json.dumps(about).encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: whoever waits for this very file sees that it is gone
        os.close(file)
        if is_new:
            with contextlib.suppress(OSError):  # it holds something now
                folder.rmdir()


def holder(folder: Path) -> str | None:
    """Who works in a folder at the moment; None: nobody."""
    path = folder / NAME
    if sys.platform == "win32" or not path.exists():
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would wait
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _who(path)
    finally:
        os.close(file)


def _take(path: Path) -> int | None:
    """The locked file; None if another process holds it."""
    while sys.platform != "win32":
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # whoever made it may have left and removed it
        except FileExistsError as error:  # it does so while `mkdir` looks whether what is there is a folder
            if os.path.lexists(error.filename) and not os.path.isdir(error.filename):
                raise
            continue
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:  # it does so just now
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        os.close(file)  # its holder ended between the two calls and removed it
    return None


def _who(path: Path) -> str:
    try:
        about = read_json(path)
    except FedpriorError:
        return "another process"
    return f"process {about.get('pid')} on {about.get('host')} since {about.get('since')}"
