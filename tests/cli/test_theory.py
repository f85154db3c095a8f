"""fedprior theory: its files, and that its numbers have the signs and orders that they must have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import fedprior, refused


@pytest.mark.slow
def test_the_quick_command(tmp_path: Path) -> None:
    outcome = fedprior("theory", "--quick", "--seeds", "16", "--out", tmp_path / "new")
    assert outcome.code == 0, outcome.err
    written = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert written == ["theory-radius.png", "theory-rate.png", "theory-step.png", "theory.json"]
    assert all((tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG") for name in written[:3])
    assert len(outcome.err.splitlines()) >= 6  # progress, without a terminal too
    assert "theory.json" in outcome.out

    tables = json.loads((tmp_path / "new" / "theory.json").read_text())
    by = {(row["curve"], row["against"]): row for row in tables["slopes"]}
    sampled = by["quadratic, S = 2 of 8, from w*", "T"]
    assert sampled["low"] < -0.7
    assert sampled["low"] < sampled["slope"] < sampled["high"] < -0.4
    assert by["quadratic, S = N = 8, R = 2, from w*", "T"]["slope"] == pytest.approx(-2, abs=0.01)
    assert by["S = N / 4", "N"]["slope"] < -0.4 < by["S = 2", "N"]["slope"]
    assert by["S = N = 8, R = 2, T = 4000", "beta"]["slope"] == pytest.approx(-2, abs=0.01)
    assert all(row["inside"] for row in tables["slopes"])
    assert all(row["error"] < row["bound"] for key in ("rate", "clients", "beta") for row in tables[key])
    assert [row["rounds"] > 1e7 for row in tables["bounds"]] == [False, False, False, True]  # R = 20 is out of reach

    at_bound, larger, beyond = (row["error"] for row in tables["step"][1:])
    assert larger < 1e-3 * at_bound
    assert beyond > 1e6
    near, far = tables["radius"]
    assert all(0 < row["noisy ±95 %"] < row["noisy"] for row in (near, far))
    assert far["eta = 0"] < 0.01 * near["eta = 0"] < 0.01 * near["bound"]
    assert far["eta = 0"] < 0.1 * far["eta = 0.05"] < 0.1 * far["bound, eta = 0.05"]  # the term in eta has no lambda
    distances = [row["distance"] for row in tables["meta"]]
    assert distances == sorted(distances)
    assert all(row["distance"] < row["bound"] for row in tables["meta"])


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    refused(fedprior("theory", "--seeds", "1", "--out", tmp_path / "out"), "--seeds")
    assert not (tmp_path / "out").exists()
