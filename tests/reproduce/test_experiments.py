"""The scripts in experiments/ take what they can do, and nothing else."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from analysis.handmade import record, rows

from fedprior.records.schema import Status
from fedprior.reproduce.paper.kept import Kept

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_a_method_without_axes_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "digits-mclr", "--methods", "pfedbred"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXPERIMENTS / "tables.py"), run_name="__main__")
    assert "invalid choice: 'pfedbred'" in capsys.readouterr().err


def test_the_verdict_shows_what_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row of which every seed diverged is a line, and what diverged of the others is counted."""
    kept = Kept(tmp_path)
    kept.keep(record("local", seed=seed, task="toy", rows=rows({1: 80.0, 2: 90.0})) for seed in (0, 1))
    kept.keep([record("mh", seed=0, task="toy", rows=rows({1: 70.0, 2: 95.0}))])
    kept.keep([record("mh", seed=1, task="toy", status=Status.DIVERGED)])
    kept.keep(record("lg", seed=seed, task="toy", status=Status.DIVERGED) for seed in (0, 1))
    monkeypatch.setattr(sys, "argv", ["verdict.py", str(tmp_path)])
    runpy.run_path(str(EXPERIMENTS / "verdict.py"), run_name="__main__")
    table = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    told = [dict(zip(table[0], line, strict=True)) for line in table[2:]]
    assert [(row["row"], row["seeds"], row["diverged"], row["last"]) for row in told] == [
        ("mh, P", "1", "1", "95.00"),
        ("local, P", "2", "0", "90.00 ± 0.00"),
        ("lg", "0", "2", "-"),
    ]
