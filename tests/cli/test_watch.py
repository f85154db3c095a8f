"""fedprior watch: the report page, served on this machine alone."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from analysis.handmade import written_below
from program import fedprior, refused
from report.page.made import made

from fedprior.cli import serving
from fedprior.cli.serving import server
from fedprior.report.page.live import Watched


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a server that watches runs."""
    for each in made(seeds=1, rounds=2):
        written_below(tmp_path, each)
    with server(Watched([tmp_path]), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield int(serving.server_address[1])
        serving.shutdown()
        thread.join()


def ask(port: int, path: str = "/", host: str | None = None, method: str = "GET") -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
    connection.close()
    return found


def test_the_page_and_its_version(port: int) -> None:
    code, headers, page = ask(port)
    assert (code, headers["content-type"], headers["cache-control"]) == (200, "text/html; charset=utf-8", "no-store")
    assert "<h1>toy</h1>" in page
    assert "connect-src 'self'" in page
    code, headers, version = ask(port, "/version")
    assert (code, headers["content-type"]) == (200, "application/json; charset=utf-8")
    assert re.fullmatch("[0-9a-f]{16}", json.loads(version)["version"])
    assert ask(port, "/../../etc/passwd")[0] == 404
    assert ask(port, method="POST")[0] == 501


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "localhost", "127.0.0.1.evil.example:{port}", ""]
)
def test_a_page_elsewhere_whose_name_points_here_is_refused(port: int, host: str) -> None:
    given = host.format(port=port) or " "
    for path in ("/", "/version"):
        code, _, text = ask(port, path, host=given)
        assert code == 421
        assert "toy" not in text
    assert ask(port, host=f"localhost:{port}")[0] == 200


def test_a_browser_leaves_out_the_usual_port(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "USUAL", port)
    codes = {host: ask(port, host=host)[0] for host in ("localhost", "127.0.0.1", f"localhost:{port}", "evil.example")}
    assert list(codes.values()) == [200, 200, 200, 421]


def test_it_is_for_this_machine_alone(port: int) -> None:
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in [*others, "127.0.0.2"]:
        with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
            socket.create_connection((str(address), port), timeout=2)


def test_a_port_that_is_taken_is_a_clear_error(port: int, tmp_path: Path) -> None:
    refused(fedprior("watch", tmp_path, "--port", port), f"port {port} is taken by another program", "--port 0")
    refused(fedprior("watch", tmp_path, "--port", 70_000), "there is no port 70000")
    refused(fedprior("watch", tmp_path / "nowhere" / "runs"), "is no folder, and none will be made there")


class Odd:
    """Whose page is asked for by a browser that goes away, and whose version is out of order."""

    def page(self) -> tuple[str, str]:
        raise BrokenPipeError("the browser went away")

    def version(self) -> str:
        raise RuntimeError("out of order")


def test_a_browser_that_goes_away_is_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    with server(Odd(), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for path in ("/", "/version"):
            with pytest.raises(http.client.RemoteDisconnected):
                ask(int(serving.server_address[1]), path)
        serving.shutdown()
        thread.join()
    told = capsys.readouterr().err
    assert "RuntimeError: out of order" in told
    assert "went away" not in told


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    # What a script runs in the background ignores Ctrl-C, and so do the processes that it starts.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{hears}; import fedprior.cli; fedprior.cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "watch", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
    assert found is not None, line
    assert "There are no runs yet" in ask(int(found[1]))[2]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "no longer watching\n", "")
