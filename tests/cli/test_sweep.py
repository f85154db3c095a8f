"""fedprior sweep: the table, the choice, the command that uses it, and grids that make no sense."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import fedprior, refused

from fedprior.records.runs import RunFolder

QUICK = ("--rounds", "2", "--set", "R=2", "--set", "K=2", "--set", "metrics=[]")


@pytest.mark.slow
def test_the_command_chooses_and_tells_how_to_use_the_choice(tmp_path: Path) -> None:
    command = ("sweep", "digits-mclr", "-m", "pfedme", "-m", "fedavg", *QUICK, "--set", "alpha_m=0.1", "--seeds", "2")
    grid = ("--grid", "lambda=0.5,1e30,15", "--grid", "start=w,theta", "--set", "beta=2")
    first = fedprior(*command, *grid, "--out", tmp_path, "--json", "--parallel", tmp_path / "mine.svg")
    assert first.code == 0, first.err
    summary = json.loads(first.out)
    assert first.out == (tmp_path / "digits-mclr" / "sweep" / "summary.json").read_text()
    assert (tmp_path / "mine.svg").read_bytes().startswith(b"<?xml")
    assert "test was not looked at" in summary["chosen_by"]
    assert summary["validation"] == 0.2
    cells = summary["methods"]["pfedme"]["cells"]
    assert [c["setting"] for c in cells] == [{"lam": v, "start": s} for v in (0.5, 1e30, 15.0) for s in ("w", "theta")]
    assert [c["validation"] is None for c in cells] == [False, False, True, True, False, False]
    assert cells[2]["diverged"].startswith("in round ")
    best = max((c for c in cells if c["validation"]), key=lambda c: c["validation"]["mean"])
    assert summary["methods"]["pfedme"]["chosen"] == best["setting"]
    assert [c["setting"] for c in summary["methods"]["fedavg"]["cells"]] == [{}]  # it has neither key
    tables = [RunFolder(Path(best["folder"]) / seed).rows("metrics.csv") for seed in ("0", "1")]
    values = [
        row.values["accuracy"]
        for rows in tables
        for row in rows
        if (row.model, row.average) == ("personal", "weighted")
    ]
    assert best["validation"]["mean"] == pytest.approx(np.mean(values))
    assert len(values) == 2

    chosen = shlex.split(summary["methods"]["pfedme"]["command"])
    assert chosen[:3] == ["fedprior", "run", "digits-mclr"]
    assert fedprior(*chosen[1:], "--out", tmp_path / "runs").code == 0
    used = RunFolder(tmp_path / "runs" / "digits-mclr" / "pfedme" / "1").config["run"]
    settings = used["variant"]["settings"]
    assert {key: settings[key] for key in best["setting"]} == best["setting"]
    assert (used["task"]["validation"], used["protocol"]["rounds"]) == (0, 2)
    assert (settings["R"], settings["alpha_m"]) == (2, 0.1)
    assert used["variant"]["wrappers"] == {"beta": 2.0}
    assert "alpha_m" not in summary["methods"]["fedavg"]["command"]

    shown = fedprior(*command, *grid, "--out", tmp_path)  # all of it is reused
    assert shown.code == 0
    assert (tmp_path / "digits-mclr" / "sweep" / "parallel.png").read_bytes().startswith(b"\x89PNG")
    assert summary["methods"]["pfedme"]["command"] in shown.out
    assert "the test was not looked at" in " ".join(shown.out.split())
    line = next(line for line in shown.out.splitlines() if line.rstrip().endswith("chosen"))
    assert f"{best['validation']['mean']:.2f}±{best['validation']['std']:.2f}" in line
    assert sum("diverged" in line for line in shown.out.splitlines()) == 2
    assert "2 of 2 done" in shown.err


def test_every_setting_diverged(tmp_path: Path) -> None:
    outcome = fedprior(
        "sweep", "digits-mclr", "-m", "pfedme", "--grid", "lam=1e30,1e31", *QUICK, "--out", tmp_path, "--json"
    )
    assert outcome.code == 1
    assert json.loads(outcome.out)["methods"]["pfedme"]["chosen"] is None
    assert "every setting of pfedme diverged" in outcome.err


def test_grids_that_make_no_sense(tmp_path: Path) -> None:
    def sweep(*more: str) -> Any:
        return fedprior("sweep", "digits-mclr", "-m", "fedavg", "-m", "local", "--out", tmp_path / "out", *more)

    refused(
        sweep("--grid", "alhpa=0.1,0.2"), "unknown key 'alhpa' in --grid (did you mean 'alpha'?)", "valid: R, alpha"
    )
    refused(sweep("--grid", "batch=10,20"), "'batch' is the task's", "--set batch=")
    refused(sweep("--grid", "alpha=0.1", "--set", "alpha=0.2"), "'alpha' is in --grid and in --set")
    refused(sweep("--grid", "alpha=0.1", "--grid", "alpha=0.2"), "'alpha' twice")
    refused(sweep("--grid", "alpha=0.1,,0.2"), "'alpha=0.1,,0.2' is not of the form key=value,value,...")
    refused(sweep("--grid", "alpha"), "'alpha' is not of the form")
    refused(sweep("--grid", "alpha=0.1,-1"), "alpha = -1")
    refused(sweep("--grid", "R=1,1.5"), "R = 1.5 has the wrong type")
    refused(sweep("--set", "alpha=0.2"), "fedavg declares nothing more to sweep", "--grid")
    refused(fedprior("sweep", "digits-mclr"), "--method")
    refused(fedprior("sweep", "digits-mclr", "-m", "fedavgg"), "did you mean 'fedavg'?")
    refused(sweep("--grid", "alpha=0.1", "--set", "validation=0.001"), "validation = 0.001 leaves no client")
    refused(sweep("--set", "validation=0"), "validation = 0: a sweep chooses on validation samples", "validation=0.2")
    idle = ("sweep", "digits-mclr", "-m", "lg", "--grid", "eta=0.01,0.1", "--out", tmp_path / "out")
    refused(fedprior(*idle), "--grid eta: eta needs a mean with memory, so that all its values would do the same")
    assert not (tmp_path / "out").exists()
