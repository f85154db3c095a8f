"""A page served on this machine alone, by the standard library's server."""

from __future__ import annotations

import errno
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from fedprior.errors import FedpriorError

HOST = "127.0.0.1"
USUAL = 80  # the port of web pages
NAMES = (HOST, "localhost")  # what a browser on this machine may call it; any other name is not meant for it


class Pages(Protocol):
    """What is served."""

    def page(self) -> tuple[str, str]:
        """The version of the page, and the page."""
        ...

    def version(self) -> str:
        """The version of the page."""
        ...


def server(pages: Pages, port: int) -> ThreadingHTTPServer:
    """A server of the page on a port (0: any that is free), which a caller sets to work."""

    class Handler(_Handler):
        watched = pages

    try:
        return _Server((HOST, port), Handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise FedpriorError(f"cannot serve on port {port}: {error.strerror}; choose another with --port") from error
        raise FedpriorError(
            f"port {port} is taken by another program, perhaps another `fedprior watch`; choose another with --port, "
            "or --port 0 for any that is free"
        ) from error
    except OverflowError as error:
        raise FedpriorError(f"there is no port {port}; choose one from 1024 to 65535") from error


def own_names(port: int) -> list[str]:
    """What a browser calls a server on this port; it leaves out the port that the web has by custom.

    >>> own_names(8420), own_names(80)[2:]
    (['127.0.0.1:8420', 'localhost:8420'], ['127.0.0.1', 'localhost'])
    """
    return [f"{name}:{port}" for name in NAMES] + (list(NAMES) if port == USUAL else [])


class _Server(ThreadingHTTPServer):
    """Says nothing of a browser that goes away before it has its answer."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of whatever else went wrong."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET / with the page and GET /version with its version, to this machine's own browser."""

    watched: Pages
    server_version, sys_version = "fedprior", ""

    def do_GET(self) -> None:
        """Answer a request."""
        if not self._is_meant():
            self._answer(421, "text/plain", "this server is for this machine alone")
        elif self.path.split("?")[0] in ("/", "/index.html"):
            self._answer(200, "text/html", self.watched.page()[1])
        elif self.path.split("?")[0] == "/version":
            self._answer(200, "application/json", json.dumps({"version": self.watched.version()}))
        else:
            self._answer(404, "text/plain", "there is only / and /version")

    def _is_meant(self) -> bool:
        """Whether the request calls this server by its own name: a page elsewhere that has its name point here does not."""
        return self.headers.get("Host") in own_names(self.connection.getsockname()[1])

    def _answer(self, code: int, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(code)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page that looks for news every other second would fill the terminal."""
