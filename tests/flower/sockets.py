"""Which addresses a federation's processes listen on and connect to."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import TracebackType

from flower.loopback import Federation

LISTENING = "0A"


class Watch:
    """Looks at the sockets of all of a federation's processes, once in a while, until it is left."""

    def __init__(self, federation: Federation, seconds: float = 0.5):
        self.federation, self.seconds = federation, seconds
        self.seen: set[str] = set()  # addresses that were listened on or connected to
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self.seconds):
            self.seen |= addresses(self.federation)


def addresses(federation: Federation) -> set[str]:
    """The local and remote addresses of a federation's sockets at this moment."""
    inodes: set[str] = set()
    for process in federation.processes():
        try:
            inodes |= {str(link.readlink()) for link in (process / "fd").iterdir()}
        except OSError:  # it has ended
            continue
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" not in inodes:
                continue
            found.add(_text(words[1]))
            if words[3] != LISTENING:
                found.add(_text(words[2]))
    return found


def _text(address: str) -> str:
    raw = bytes.fromhex(address.partition(":")[0])
    packed = b"".join(raw[k : k + 4][::-1] for k in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed).removeprefix("::ffff:")
