"""The scripts in experiments/ take what they can do, and nothing else."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_a_method_without_axes_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "digits-mclr", "--methods", "pfedbred"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXPERIMENTS / "tables.py"), run_name="__main__")
    assert "invalid choice: 'pfedbred'" in capsys.readouterr().err
