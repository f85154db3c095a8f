"""A real federation on this machine: docs/deploy.md, whose commands are run as they are written, in one shell.

Only the ports are others, so that nobody gets in anybody's way. Everything listens on 127.0.0.1. Where nginx is absent, the
sites reach the SuperLink's own port, and what is about the proxy is left out.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "deploy.md"
SITES = {"st-anna": "St. Anna", "north": "North", "lakeside": "Lakeside"}  # the page's folders, and the sites' names
# A virtual environment's programs, and where `make` unpacks an nginx that the system does not have.
PROGRAMS = [Path(sys.executable).parent, Path(sys.executable).parent.parent / "nginx" / "usr" / "sbin"]
PATH = os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"], "/usr/sbin"])
SECONDS = 600  # that a block of the page may take: it hangs if it takes longer
DONE = "---- done ----"


def has_nginx() -> bool:
    """Whether there is a proxy for the sites."""
    return shutil.which("nginx", path=PATH) is not None


def blocks(page: str) -> list[tuple[str, str]]:
    """The shell blocks of a page, each with the heading that it stands below."""
    found, heading = [], ""
    for title, code in re.findall(r"^## ([^\n]*)$|^```sh\n(.*?)^```", page, re.M | re.S):
        if title:
            heading = title
        else:
            found.append((heading, code))
    return found


def free_port() -> str:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class Federation:
    """The page's federation, in a folder of its own, and the shell in which the page is followed."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None):
        self.folder, self.home = folder, folder / "federation"
        self._mark = f"FEDPRIOR_FEDERATION={secrets.token_hex(8)}"  # by which its processes are known
        name, _, value = self._mark.partition("=")
        self.environment = {**os.environ, "PATH": PATH, name: value, **(environment or {})}
        ports = {port: free_port() for port in ("9093", "9443", "9101", "9102", "9103")}
        if not has_nginx():
            ports["9443"] = ports["9093"]
        self.link, self.fleet = ports["9093"], ports["9443"]
        text = re.sub(r"\b9\d\d\d\b", lambda found: ports[found[0]], PAGE.read_text())
        self.blocks = blocks(text)
        self._count = 0
        self.shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-e"],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def follow(self, after: str = "", before: str = "") -> str:
        """Run the page's blocks from those below one heading up to those below another; returns what they say."""
        headings = [heading for heading, _ in self.blocks]
        first = headings.index(after) if after else 0
        last = headings.index(before) if before else len(headings)
        return "".join(self.type(code) for _, code in self.blocks[first:last])

    def type(self, code: str) -> str:
        """Run commands in the page's shell, and return what they say; one that fails is an error."""
        if not has_nginx():
            code = "".join(line for line in code.splitlines(True) if not line.startswith("nginx "))
        self._count += 1
        path = self.folder / f"block-{self._count}.sh"
        path.write_text(code)
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        watchdog = threading.Timer(SECONDS, os.killpg, (self.shell.pid, signal.SIGKILL))
        watchdog.start()
        said: list[str] = []
        try:
            # Not what the shell itself reads: a command that asked for input would swallow those that follow.
            self.shell.stdin.write(f". '{path}' < /dev/null\nprintf '\\n{DONE}\\n'\n")
            self.shell.stdin.flush()
            for line in self.shell.stdout:
                if line == f"{DONE}\n":
                    return "".join(said)
                said.append(line)
        finally:
            watchdog.cancel()
        raise AssertionError(f"the page's commands fail:\n{code}\nThey say:\n{''.join(said)}\n{self.logs()}")

    def logs(self) -> str:
        """The last words of every program."""
        return "\n".join(f"--- {path}\n{path.read_text()[-3000:]}" for path in sorted(self.home.rglob("*.log")))

    def processes(self) -> Iterator[Path]:
        """The folders in /proc of all processes that the page's shell started, and of those that they did.

        They inherit a variable. nginx writes over what it inherited, and works in the federation's folder.
        """
        for process in Path("/proc").glob("[0-9]*"):
            try:
                here = (process / "cwd").readlink().is_relative_to(self.folder.resolve())
                if here or self._mark.encode() in (process / "environ").read_bytes():
                    yield process
            except OSError:  # it has ended, or is another user's
                continue

    def stop(self) -> None:
        """End whatever is left of it."""
        for stream in (self.shell.stdin, self.shell.stdout):
            if stream is not None:
                stream.close()
        for _ in range(3):  # a loop may start a node in the meantime
            for process in self.processes():
                os.kill(int(process.name), signal.SIGKILL)
            time.sleep(0.2)
        self.shell.wait()


def wait(done: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait for something, within a bound."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.2)
