"""fedprior run and its folders: plans, folders that cannot be written, runs that are there, stopping."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from program import Outcome, contents, fedprior, refused

from cli.commands import COMPARE, ONE
from fedprior import files
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status

pytestmark = pytest.mark.xdist_group("cli")  # one worker makes the comparison that all of them look at

# -- plans -------------------------------------------------------------------------------------------------------------


def test_a_plan_runs_and_writes_nothing(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, _ = compared
    before = contents(folder.parent)
    plan = fedprior(*COMPARE, "-m", "fedavg:beta=2", "--plan", "--out", folder.parent)
    assert (plan.code, plan.err) == (0, "")
    words = " ".join(plan.out.split())
    assert words.startswith("planned runs task row seed status rounds time left")
    assert words.count("finished 12 of 12 0:00:00") == 6
    assert words.count("to do 0 of 12 unknown") == 2
    assert "6 of 8 runs are done; time left, one after the other: unknown" in words
    longer = fedprior(*COMPARE, "--rounds", "1000", "--plan", "--out", folder.parent)
    assert longer.out.count("12 of 1000") == 6
    assert "unknown" not in longer.out
    assert contents(folder.parent) == before
    assert fedprior(*ONE, "--plan", "--out", tmp_path / "new").code == 0
    assert not (tmp_path / "new").exists()


# -- output folders that cannot be written, runs that are there --------------------------------------------------------


CHOOSE = "choose a folder that can be written"


def test_an_output_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(fedprior(*ONE, "--out", tmp_path / "file"), f"cannot write {tmp_path / 'file'}", CHOOSE)
    refused(fedprior(*ONE, "--out", "/proc/nowhere"), "cannot write /proc/nowhere", CHOOSE)
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_read_only_or_full_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    line = refused(fedprior(*ONE, "--out", tmp_path / "out"), f"cannot write {tmp_path / 'out'}", "folder")
    assert os.strerror(number) in line
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary is the last file of all: when it cannot be written the runs are there, and can be had with --resume."""
    real = os.replace

    def replace(old: Any, new: Any) -> None:
        if Path(new).name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        full = fedprior(*ONE, "--out", tmp_path, "--json")
    assert (full.code, full.out) == (2, "")
    assert full.err.splitlines()[-1].startswith(
        f"error: cannot write {tmp_path / 'digits-mclr' / 'summary.json'}: No space"
    )
    assert not list(tmp_path.rglob("*.tmp"))
    assert fedprior(*ONE, "--out", tmp_path, "--json", "--resume").code == 0


def test_runs_that_are_there(tmp_path: Path) -> None:
    assert fedprior(*ONE, "--out", tmp_path).code == 0
    before = contents(tmp_path)
    refused(fedprior(*ONE, "--out", tmp_path), "already holds a run", "--resume", "--overwrite")
    other = refused(fedprior(*ONE, "--set", "alpha=0.3", "--out", tmp_path, "--resume"), "run of other settings")
    assert "settings.alpha: 0.05 then, 0.3 now" in other
    # A run of other settings is found before any other method has begun.
    refused(
        fedprior(*ONE, "-m", "pfedme", "--set", "partition.seed=3", "--out", tmp_path, "--resume"), "partition.seed"
    )
    refused(fedprior(*ONE[:4], "--set", "batch=7", "--out", tmp_path, "--resume"))
    refused(fedprior(*ONE[:4], "--out", tmp_path), "already holds a run")
    refused(fedprior(*ONE, "--rounds", "1", "--out", tmp_path, "--resume"), "at round 2 of 2 already")
    assert contents(tmp_path) == before
    config = tmp_path / "digits-mclr" / "fedavg" / "0" / "config.json"
    whole = json.loads(config.read_text())
    config.write_text(json.dumps({**whole, "format": 99}))
    refused(fedprior("table", tmp_path), "is of format 99, which a newer fedprior wrote")
    config.write_text("{}")
    refused(fedprior(*ONE, "--out", tmp_path, "--resume"), "config.json does not describe a run")
    refused(fedprior("table", tmp_path), "config.json does not describe a run")
    config.write_text("{")
    refused(fedprior(*ONE, "--out", tmp_path, "--resume"), "cannot read", "config.json")
    assert fedprior(*ONE, "--out", tmp_path, "--overwrite").code == 0


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_the_second_ctrl_c_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even within the write of a checkpoint; the run then goes on from the one before."""

    def moment(where: str, path: Path) -> None:
        if where == "written" and path.name == "round-00000002.safetensors":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(files, "moment", moment)
        stopped = fedprior(*ONE, "--rounds", "3", "--checkpoint-seconds", "0", "--out", tmp_path)
    assert (stopped.code, stopped.out) == (130, "")
    assert "--resume" in stopped.err.splitlines()[-1]
    run = RunFolder(tmp_path / "digits-mclr" / "fedavg" / "0")
    assert [p.name for p in run.checkpoints] == ["round-00000001.safetensors"]
    assert fedprior(*ONE, "--rounds", "3", "--out", tmp_path, "--resume").code == 0
    assert run.status == (Status.FINISHED, 3)
