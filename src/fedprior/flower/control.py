"""Runs on a SuperLink, by Flower's own program `flwr`: how one is begun, and what became of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.common.config import parse_config_args

from fedprior.errors import FedpriorError, first_line
from fedprior.files import write_text

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}  # otherwise Flower calls its makers
PATIENCE = 30.0  # seconds from the end of a run's log to its last word


def read_config(given: str, option: str) -> dict[str, Any]:
    """A configuration as Flower takes it: pairs of a key and a value, or the name of a TOML file.

    >>> read_config('row="mh" clients=3', "--run-config")
    {'row': 'mh', 'clients': 3}
    """
    import click  # Flower's reader raises its errors

    try:
        read = parse_config_args([given] if given else None)
    except (ValueError, OSError, click.ClickException) as error:
        raise FedpriorError(
            f"{option} {given!r} is neither of the form 'key=\"text\" number=1' nor a TOML file ({first_line(error)})"
        ) from error
    if given and not read:
        raise FedpriorError(f"{option} {given!r} holds no key=value")
    return read


def begin(app: Path, connection: str, config: Mapping[str, Any]) -> str:
    """Start a run of an app and return its number."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"  # in a file, since a value on the command line may hold only one kind of quote
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in config.items())
        write_text(path, "".join(lines))
        return str(_answer("run", str(app), connection, "--run-config", str(path))["run-id"])


def follow(number: str, connection: str) -> bool:
    """Show the log of a run on the terminal until it ends, and return True, or until Ctrl-C, and return False."""
    try:
        subprocess.run([*_program(), "log", number, connection, "--stream"], env=_environment(), check=False)
    except KeyboardInterrupt:
        return False
    return True


def check_finished(number: str, connection: str) -> None:
    """Raise what a run failed with."""
    end = time.monotonic() + PATIENCE
    while True:
        (run,) = _answer("list", connection, "--run-id", number)["runs"]
        status, _, how = str(run["status"]).partition(":")
        if status == "finished" and how == "completed":
            return
        if status == "finished" or time.monotonic() > end:
            break
        time.sleep(1.0)
    if status != "finished":
        raise FedpriorError(
            f"run {number} is {status} though its log has ended here: it goes on, and nobody watches it; "
            f"`flwr list {connection} --run-id {number}` says how it stands, and `flwr log {number} {connection} --stream` "
            "follows its log again"
        )
    why = str(run["status-details"]).removeprefix("ServerApp failed with exception: ").strip()
    raise FedpriorError(f"run {number} is {how}: {why or f'see `flwr log {number} {connection} --show`'}")


def _answer(*words: str) -> dict[str, Any]:
    """What `flwr` says as JSON; a refusal is an error."""
    done = subprocess.run([*_program(), *words, "--format", "json"], env=_environment(), capture_output=True, text=True)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise FedpriorError(f"`flwr {words[0]}` failed: {' '.join((done.stderr or done.stdout).split())}") from None
    if not said.get("success"):
        reason = str(said.get("error-message", "")).strip().splitlines() or ["it does not say why"]
        raise FedpriorError(f"`flwr {words[0]}` failed: {reason[-1]}")
    return said


def _program() -> list[str]:
    """Flower's program: that of this environment, where there is one."""
    beside = Path(sys.executable).with_name("flwr")
    return [str(beside) if beside.exists() else "flwr"]


def _environment() -> dict[str, str]:
    return {**QUIET, **os.environ}
