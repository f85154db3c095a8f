"""The figure of coherence: its filter, its numbers, and a quick one from end to end."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from fedprior.reproduce.paper.gce import ORDER, WINDOW, Curves, filtered

from .quick import made


def test_the_filter_keeps_a_cubic_and_weakens_noise() -> None:
    t = np.linspace(-1, 1, 60)
    cubic = 0.5 + t - 2 * t**3
    np.testing.assert_allclose(filtered(cubic), cubic, atol=1e-12)
    noise = np.random.default_rng(0).normal(size=2000)
    # White noise keeps a part 9 / (4 w) of its variance, roughly, under a cubic over a window of w.
    assert np.var(filtered(noise)) == pytest.approx(9 / (4 * WINDOW), rel=0.3)


def test_a_short_run_has_a_shorter_window_or_none() -> None:
    short = np.array([0.1, 0.9, 0.2, 0.8, 0.5, 0.4])
    assert not np.allclose(filtered(short), short)
    np.testing.assert_array_equal(filtered(short[:ORDER]), short[:ORDER])


def test_the_end_is_the_last_fifth_of_the_rounds() -> None:
    gce = np.stack([np.linspace(0, 0.9, 10), np.full(10, 0.5)])
    curves = Curves("mh", (3, 7), 20, np.arange(1, 11), gce)
    assert curves.at_the_end(curves.gce) == pytest.approx({3: 0.85, 7: 0.5})
    assert curves.log_determinants[1, 0] == pytest.approx(20 * np.log(0.5))


@pytest.mark.slow
def test_quick(tmp_path: Path) -> None:
    files, results = made("gce", tmp_path, methods=("pfedme-released", "mh-released"), seeds=1)
    lines = list(csv.DictReader(files["gce-rounds.csv"].read_text().splitlines()))
    assert [(line["row"], int(line["round"])) for line in lines] == [
        (m, t) for m in ("pFedMe", "mh") for t in (1, 2, 3, 4)
    ]
    recorded = [row.values["gce"] for row in results.records[0].rows if row[1:4] == ("personal", "own", "weighted")]
    assert [float(line["gce"]) for line in lines[:4]] == recorded
    assert "fedprior reproduce gce" in files["gce.txt"].read_text()
