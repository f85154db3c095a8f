"""What a command tells of a study's runs at the end, or when it is stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from program import fedprior

from cli.commands import IID
from fedprior.records.runs import RunFolder
from fedprior.study import study as study_module
from fedprior.study.cells import Cell, CellWatch
from fedprior.study.results import Lost, Results
from fedprior.study.study import Study

STUDY = """
tasks = ["iid.toml", "digits-mclr"]
local = false
[variants]
fedavg = {}
wild = {method = "fedavg"}
[settings]
rounds = 1
pooled = "never"
"partition.clients" = 3
aggregated = 3
"""


@pytest.fixture
def losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study file; of all runs of the row "wild", that of the first task diverges, and that of the second fails."""
    (tmp_path / "two.toml").write_text(STUDY.replace('"partition.clients" = 3', "").replace("aggregated = 3", ""))
    (tmp_path / "iid.toml").write_text(IID)
    whole = Study._run_cell

    def run_cell(self: Study, cell: Cell, results: Results, watch: CellWatch, *more: Any) -> Any:
        if cell.variant != "wild":
            return whole(self, cell, results, watch, *more)
        how = "diverged" if cell.task == "iid" else "failed"
        results.lost.append(Lost(cell.task, cell.variant, how, f"wild of {cell.task} {how}"))
        watch(cell, None)
        return None

    monkeypatch.setattr(study_module.Study, "_run_cell", run_cell)
    return tmp_path / "two.toml"


def test_what_is_lost_is_told_of_its_own_task(losing: Path, tmp_path: Path) -> None:
    done = fedprior("study", losing, "--set", "R=1", "--json", "--out", tmp_path / "runs")
    assert done.code == 1
    assert "diverged: wild of iid diverged" in done.err
    assert "failed: wild of digits-mclr failed" in done.err
    told = json.loads(done.out)
    assert (told["iid"]["diverged"], told["iid"]["failed"]) == (["wild of iid diverged"], [])
    assert (told["digits-mclr"]["diverged"], told["digits-mclr"]["failed"]) == ([], ["wild of digits-mclr failed"])
    assert json.loads((tmp_path / "runs" / "iid" / "summary.json").read_text()) == told["iid"]


def test_rows_that_are_left_out_are_told_by_task() -> None:
    study = Study(["digits-mclr", "digits-dnn"], ["fedavg", "local"], optional=["local"], beta=2.0, rounds=1)
    told = [text for text in study.remarks() if "runs without" in text]
    assert told == [
        f"{task}, local has no global model and runs without beta" for task in ("digits-mclr", "digits-dnn")
    ]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ((), "the same command with --resume goes on from here"),
        (("--overwrite",), "the same command with --resume in place of --overwrite goes on from here"),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_a_stopped_command_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], advice: str, times: int
) -> None:
    append = RunFolder.append

    def interrupted(self: RunFolder, *rows: Any) -> None:
        append(self, *rows)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunFolder, "append", interrupted)
    small = ("--set", "R=1", "--set", "partition.clients=3", "--set", "aggregated=3")
    done = fedprior("run", "digits-mclr", "-m", "fedavg", "--no-local", *small, *options, "--out", tmp_path)
    assert done.code == 130, done.err
    assert done.err.splitlines()[-1] == f"stopped; {advice}"


def test_ctrl_c_elsewhere_gives_no_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedprior.analysis.grouping.find_runs", interrupt)
    done = fedprior("runs", tmp_path)
    assert (done.code, "--resume" in done.err) == (130, False)
