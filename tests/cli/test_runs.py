"""fedprior runs: how runs stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import fedprior, refused
from study.small import run, stop_after

from fedprior.errors import FedpriorError
from fedprior.records.lock import hold
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status

pytestmark = pytest.mark.xdist_group("resume")  # which has compiled these programs


def test_how_runs_stand(tmp_path: Path) -> None:
    for name in ("finished", "interrupted", "running", "damaged"):
        run(tmp_path / name)
    run(tmp_path / "stopped", **stop_after(2))
    for name in ("interrupted", "running"):
        RunFolder(tmp_path / name).set_status(Status.RUNNING, 4)
    RunFolder(tmp_path / "diverged").begin(RunFolder(tmp_path / "finished").config)
    RunFolder(tmp_path / "diverged").set_status(Status.DIVERGED, 1)
    (tmp_path / "damaged" / "config.json").write_text("{")
    with hold(tmp_path / "running"):
        listed = json.loads(fedprior("runs", tmp_path, "--json").out)
        shown = fedprior("runs", tmp_path)
    standing = {row["folder"]: (row["status"], row["round"]) for row in listed}
    assert standing == {
        "finished": ("finished", 6),
        "interrupted": ("interrupted", 4),
        "running": ("running", 6),  # as far as its tables go
        "damaged": ("damaged", "?"),
        "stopped": ("stopped", 2),
        "diverged": ("diverged", 1),
    }
    notes = {row["folder"]: row["note"] for row in listed}
    assert notes["running"].startswith("by process ")
    assert notes["stopped"] == notes["interrupted"] == "--resume goes on with it"
    assert "cannot read" in notes["damaged"]
    assert all(status in shown.out for status, _ in standing.values())


def test_where_there_are_none(tmp_path: Path) -> None:
    refused(fedprior("runs", tmp_path), "no runs at or below")


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path / "one", **stop_after(2))
    with hold(tmp_path / "one"), pytest.raises(FedpriorError, match="is in use by process"):
        run(tmp_path / "one", resume=True)
    assert RunFolder(tmp_path / "one").status == (Status.STOPPED, 2)
