"""One process at a time in a run's folder."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fedprior.errors import FedpriorError
from fedprior.records.lock import LOOK, NAME, hold, holder

CODE = """
import sys, time
from pathlib import Path
from fedprior.records.lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """A process that holds the folder."""
    process = subprocess.Popen([sys.executable, "-c", CODE, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_holds_it_and_a_dead_one_is_taken_over(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        assert holder(tmp_path) is not None
        told = f"in use by process {process.pid} on .* since .*; wait until it ends"
        with pytest.raises(FedpriorError, match=told), hold(tmp_path):
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert (tmp_path / NAME).exists()  # it was left behind
    assert holder(tmp_path) is None
    with hold(tmp_path):
        assert holder(tmp_path) is not None
    assert not list(tmp_path.iterdir())


def test_who_has_patience_gets_in_when_the_other_leaves(tmp_path: Path) -> None:
    process = start(tmp_path)
    threading.Timer(0.5, process.kill).start()
    with hold(tmp_path, seconds=30.0):
        assert process.wait(5) == -signal.SIGKILL
    assert process.stdout is not None
    process.stdout.close()


def test_who_only_looks_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()  # left behind
    with (tmp_path / NAME).open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        threading.Timer(LOOK / 3, fcntl.flock, (looked_at, fcntl.LOCK_UN)).start()
        with hold(tmp_path):
            assert holder(tmp_path) is not None


def test_a_folder_that_the_other_made_and_removed_is_made_again(tmp_path: Path) -> None:
    new = tmp_path / "new"
    taken, leave = threading.Event(), threading.Event()

    def other() -> None:
        with hold(new):
            taken.set()
            leave.wait(5)

    thread = threading.Thread(target=other)
    thread.start()
    taken.wait(5)
    threading.Timer(0.05, leave.set).start()
    with hold(new, seconds=5.0):
        assert holder(new) is not None
    thread.join()


def test_a_folder_that_is_removed_just_now_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another process that leaves it between the two calls that make it and open its lock."""
    real, removed = os.open, list[str]()

    def open_(path: Path, *how: int) -> int:
        if path.name == NAME and not removed:
            removed.append(path.parent.name)
            path.parent.rmdir()
        return real(path, *how)

    monkeypatch.setattr(os, "open", open_)
    with hold(tmp_path / "new"):
        assert holder(tmp_path / "new") is not None
    assert removed == ["new"]


def test_a_folder_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process that leaves it between the two looks of `Path.mkdir`: it is there, and it is no folder."""
    real, calls = Path.mkdir, list[Path]()

    def mkdir(path: Path, *how: Any, **more: Any) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        real(path, *how, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with hold(tmp_path / "new"):
        assert holder(tmp_path / "new") is not None
    monkeypatch.undo()
    (tmp_path / "file").write_text("data")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    for name in ("file", "nowhere", "file/below", "nowhere/below"):
        with pytest.raises(FedpriorError, match="cannot write"), hold(tmp_path / name):
            pass


def test_within_one_process_too(tmp_path: Path) -> None:
    new = tmp_path / "new"
    with hold(new), pytest.raises(FedpriorError, match=f"in use by process {os.getpid()} "), hold(new):
        pass
    assert not new.exists()  # nothing was put there
    with hold(new):
        (new / "config.json").write_text("{}")
    assert [path.name for path in new.iterdir()] == ["config.json"]
    with pytest.raises(RuntimeError), hold(new):
        raise RuntimeError
    with hold(new):
        assert holder(new) is not None


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    (tmp_path / NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(FedpriorError, match="cannot write"), hold(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "data"
