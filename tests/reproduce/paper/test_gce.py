"""The figure of coherence: its filter, its numbers, and a quick one from end to end."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from analysis.handmade import record

from fedprior.errors import FedpriorError
from fedprior.records.schema import Row, Status
from fedprior.reproduce.paper.artefact import ARTEFACTS, Request
from fedprior.reproduce.paper.gce import GCE, ORDER, WINDOW, Curves, filtered
from fedprior.reproduce.paper.rows import MH
from fedprior.study.results import Results

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


def by_cell(name: str, request: Request) -> dict[tuple[str, str], tuple[dict[str, object], ...]]:
    """What is trained for an artefact, by task and row."""
    return {
        (study.settings["name"], variant.name): (variant.settings, variant.wrappers, variant.protocol)
        for study in ARTEFACTS.find(name)().studies(request)
        for variant in study.variants
    }


def test_its_cells_are_those_of_the_other_tables_and_hold_the_coherence_from_their_start() -> None:
    own = by_cell("gce", Request())
    for name in ("table1", "deviation", "ablation"):
        others = by_cell(name, Request())
        shared = {key for key in own if key in others}
        assert shared == set(own) if name == "table1" else {"pfedme-released", "mh-released"} <= {v for _, v in shared}
        assert all(own[key] == others[key] for key in shared)
        assert {key for key, (*_, protocol) in others.items() if protocol.get("gce")} >= shared
    assert all(protocol["gce"] for *_, protocol in own.values())
    elsewhere = by_cell("gce", Request(tasks=("fmnist-dnn",)))  # whose cells in the other tables do without
    assert {task for task, _ in elsewhere} == {"fmnist-dnn-gce"}


def test_a_run_without_its_coherence_is_told_of() -> None:
    for curve, when in (({}, "not recorded"), ({3: 0.5, 4: 0.5}, "only since round 3")):
        late = [Row(t, "personal", "own", "weighted", {"gce": value}) for t, value in curve.items()]
        with pytest.raises(FedpriorError, match=f"{when}.*remove that folder" if curve else "was not recorded"):
            Curves.of(MH, {0: record(rows=late)})


def test_a_task_of_which_every_run_diverged_is_left_out(tmp_path: Path) -> None:
    lost = record("mh-released", task="digits-mclr", status=Status.DIVERGED)
    curve = [Row(t, "personal", "own", "weighted", {"accuracy": 50.0, "gce": 0.1 * t}) for t in (1, 2)]
    done = record("mh-released", task="digits-dnn-gce", rows=curve)
    request = Request(tasks=("digits-mclr", "digits-dnn"))
    GCE().make(request, Results([lost, done]), tmp_path)
    text = (tmp_path / "gce.md").read_text()
    assert "digits DNN: coherence of the envelope gradients of 4 clients" in text
    assert "digits MCLR" not in text
    with pytest.raises(FedpriorError, match="every run diverged: there is no coherence to show"):
        GCE().make(request, Results([lost]), tmp_path)


def test_seeds_and_rows_that_diverged_are_told_of(tmp_path: Path) -> None:
    curve = [Row(t, "personal", "own", "weighted", {"accuracy": 50.0, "gce": 0.1 * t}) for t in (1, 2)]
    task = "digits-mclr"
    found = [record("pfedme-released", seed, rows=curve, task=task) for seed in (0, 1, 2)]
    found += [record("mh-released", 0, rows=curve, task=task)]
    found += [record("mh-released", seed, status=Status.DIVERGED, task=task) for seed in (1, 2)]
    found += [record("lg-released", 0, status=Status.DIVERGED, task=task)]
    GCE().make(
        Request(tasks=("digits-mclr",), methods=("mh-released", "pfedme-released", "lg-released")),
        Results(found[::-1]),
        tmp_path,
    )
    for name in ("gce.md", "gce.txt"):
        text = " ".join((tmp_path / name).read_text().split())
        assert "diverged: lg (seed 0), mh (seeds 1, 2)" in text
    assert "T = 2, up to 3 seeds (" in (tmp_path / "gce.md").read_text()


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
