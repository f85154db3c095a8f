"""fedprior runs: how runs stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from analysis.handmade import evaluated, record, written
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
        "interrupted": ("interrupted", 6),  # as far as its tables go, and its status does not
        "running": ("running", 6),
        "damaged": ("damaged", "?"),
        "stopped": ("stopped", 2),
        "diverged": ("diverged", 1),
    }
    notes = {row["folder"]: row["note"] for row in listed}
    assert notes["running"].startswith("by process ")
    assert notes["stopped"] == notes["interrupted"] == "--resume goes on with it"
    assert "cannot read" in notes["damaged"]
    about = {row["folder"]: row for row in listed}["stopped"]
    assert (about["commands"], about["seconds"] > 0) == ([None], True)
    assert about["begun"] < about["ended"]
    assert all(status in shown.out for status, _ in standing.values())


def test_where_there_are_none(tmp_path: Path) -> None:
    refused(fedprior("runs", tmp_path), "no runs at or below")


def test_a_run_that_is_going_on_is_left_alone(tmp_path: Path) -> None:
    run(tmp_path / "one", **stop_after(2))
    with hold(tmp_path / "one"), pytest.raises(FedpriorError, match="is in use by process"):
        run(tmp_path / "one", resume=True)
    assert RunFolder(tmp_path / "one").status == (Status.STOPPED, 2)


def test_a_damaged_run_is_told_by_every_command(tmp_path: Path) -> None:
    values = evaluated([{"accuracy": [10.0 * t, 20.0]} for t in (1, 2)], samples=[3, 3])
    one = written(tmp_path / "one", record("mh", 0, *values))
    written(tmp_path / "two", record("local", 0, *values))
    assert fedprior("compare", tmp_path, "--format", "csv").code == 0
    path = one.path / "metrics.csv"
    path.write_text(path.read_text().replace("20.0", "21.0", 1))
    for command in ("table", "compare"):
        refused(
            fedprior(command, tmp_path),
            f"{path}, line 5: its checksum is wrong; restore the file from a copy",
            "--resume",
        )
    damaged, whole = json.loads(fedprior("runs", tmp_path, "--json").out)
    assert (damaged["task"], damaged["row"], damaged["seed"], damaged["status"]) == ("toy", "mh", 0, "damaged")
    assert "line 5: its checksum is wrong" in damaged["note"]
    assert whole["status"] == "finished"
