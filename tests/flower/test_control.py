"""What `fedprior flower resume` says without a federation; docs/deploy.md has it resume one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from program import Outcome, fedprior, refused

from fedprior.errors import FedpriorError
from fedprior.flower import control


@pytest.mark.parametrize(
    ("given", "why"),
    [("row=mh", "is neither of the form"), ("none.toml", "No such file"), ("mh", "holds no key=value")],
)
def test_a_configuration_that_is_none(given: str, why: str) -> None:
    refused(fedprior("flower", "resume", "hospitals", "owner", "--run-config", given), "--run-config", why)
    refused(fedprior("flower", "check", "hospitals", "--node-config", given), "--node-config", why)


def test_a_superlink_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    project = tmp_path / "hospitals"
    assert fedprior("flower", "init", project).code == 0
    refused(fedprior("flower", "resume", project, "nowhere"), "`flwr run` failed", "'nowhere' not found")


FLWR = """
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
with open(folder / "calls.json", "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
if sys.argv[1] == "run":
    config = pathlib.Path(sys.argv[sys.argv.index("--run-config") + 1])
    (folder / "given.toml").write_bytes(config.read_bytes())
print((folder / f"{sys.argv[1]}.txt").read_text())
"""


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a program stands for Flower's: it says what the files there say."""
    (tmp_path / "flwr.py").write_text(FLWR)
    (tmp_path / "run.txt").write_text(json.dumps({"success": True, "run-id": "7"}))
    (tmp_path / "log.txt").write_text("round 1")
    monkeypatch.setattr(control, "_program", lambda: [sys.executable, str(tmp_path / "flwr.py")])
    return tmp_path


def ends(folder: Path, status: str, details: str = "N/A") -> None:
    run = {"run-id": "7", "status": status, "status-details": details}
    (folder / "list.txt").write_text(json.dumps({"success": True, "runs": [run]}))


def refused_after(done: Outcome) -> str:
    """The error of a command that had said something before."""
    assert done.code == 2, done
    return done.err


def calls(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "calls.json").read_text().splitlines()]


def test_a_run_is_resumed_with_its_own_configuration_and_one_thing_more(flwr: Path) -> None:
    import tomllib

    ends(flwr, "finished:completed")
    (flwr / "run.toml").write_text(
        'row = "mh"\nout = "/srv/St. Anna\'s \'runs\' \\" 🏥"\nclients = 3\nresume = false\n'
    )
    done = fedprior("flower", "resume", "hospitals", "owner", "--run-config", flwr / "run.toml")
    assert (done.code, done.err) == (0, "")
    assert "run 7 goes on" in done.out
    assert [words[0] for words in calls(flwr)] == ["run", "log", "list"]
    assert calls(flwr)[0][1:3] == ["hospitals", "owner"]
    assert tomllib.loads((flwr / "given.toml").read_text()) == {
        "row": "mh",
        "out": "/srv/St. Anna's 'runs' \" 🏥",
        "clients": 3,
        "resume": True,
    }


@pytest.mark.parametrize(
    ("status", "why"), [("finished:failed", "the disk is full"), ("finished:stopped", "N/A"), ("finished:failed", "")]
)
def test_a_run_that_fails_is_a_failure(flwr: Path, monkeypatch: pytest.MonkeyPatch, status: str, why: str) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.0)
    ends(flwr, status, f"ServerApp failed with exception: {why}")
    done = fedprior("flower", "resume", "hospitals", "owner")
    assert done.code == 2
    assert f"error: run 7 is {status.rpartition(':')[2]}: {why or 'see `flwr log 7 owner --show`'}" in done.err


def test_a_log_that_breaks_off_says_how_to_look_at_the_run(flwr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.0)
    ends(flwr, "running", "")
    text = refused_after(fedprior("flower", "resume", "hospitals", "owner"))
    assert "run 7 is running though its log has ended here: it goes on" in text
    assert "`flwr log 7 owner --stream` follows its log again" in text


def test_what_is_no_answer_is_shown(flwr: Path) -> None:
    (flwr / "run.txt").write_text("Traceback (most recent call last): ...")
    with pytest.raises(FedpriorError, match="`flwr run` failed: Traceback"):
        control.begin(flwr, "owner", {})


def test_ctrl_c_leaves_the_log_and_not_the_run(flwr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*words: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(control, "begin", lambda *given: "7")
    monkeypatch.setattr("fedprior.flower.control.subprocess.run", interrupt)
    assert fedprior("flower", "resume", "hospitals", "owner").code == 0
