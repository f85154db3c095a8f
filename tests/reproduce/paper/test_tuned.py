"""The protocol in which everyone is tuned: as many trials for each row, and nothing of the published one."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.handmade import record, rows
from program import contents, fedprior, refused

from fedprior.analysis.choice import Candidate
from fedprior.methods import keys, make
from fedprior.reproduce.paper.artefact import Request
from fedprior.reproduce.paper.rows import MH, ROWS
from fedprior.reproduce.paper.tasks import TASKS
from fedprior.reproduce.paper.tuned import Tried, Tuned, sweeps
from fedprior.reproduce.paper.tuning import AXES, TRIALS, trials

ASKED = ("reproduce", "table1", "--tuned", "--quick", "--methods", "fedavg", "--seeds", "1", "--rounds", "2")


def test_every_row_has_as_many_trials_and_its_published_setting_among_those_of_the_second_axis() -> None:
    for method in {row.method for row in ROWS}:
        settings = trials(method)
        assert len(settings) == TRIALS == len({tuple(setting.items()) for setting in settings})
        assert all(set(setting) <= set(keys(method)) for setting in settings)
        for axis in AXES[method][1:]:
            (key,) = axis.keys
            assert axis.pair is not None
            assert getattr(make(method), key) == axis.pair[0]


def test_settings_that_are_tied_are_swept_one_by_one() -> None:
    found = list(sweeps(TASKS.find("digits-mclr"), next(row for row in ROWS if row.label == "mh+AM"), quick=True))
    cells = [
        {**fixed, **sweep.setting(variant)} for fixed, sweep in found for variant in sweep.candidates["mh-released"]
    ]
    assert cells == trials("mh-released")
    assert all(sweep.fixed["beta"] == 2 and sweep.seeds == [0, 1] for _, sweep in found)


def test_a_row_that_a_task_does_not_allow_is_told_of() -> None:
    artefact = Tuned()
    request = Request(tasks=("digits-mclr",), methods=("fedpac",), quick=True, tuned=True)
    assert [row.label for _, rows in artefact._rows(request) for row in rows] == ["Local"]
    assert [text.partition(" is left out")[0] for text in artefact.left_out] == ["digits-mclr: fedpac"]


def scored(alpha: float, accuracy: float | None) -> Candidate:
    """A trial with a validation accuracy; without one, it diverged."""
    run = record("mh", rows=rows({1: accuracy or 0.0}, "personal", "validation"))
    return Candidate(f"mh alpha={alpha}", {"alpha": alpha}, (run,), None if accuracy is not None else "in round 1")


def test_the_best_on_validation_is_chosen_and_an_end_is_told() -> None:
    inside = Tried(MH, (scored(0.01, 50.0), scored(0.03, 70.0), scored(0.1, 60.0)))
    assert (inside.best and inside.best.setting, inside.at_end) == ({"alpha": 0.03}, "")
    end = Tried(MH, (scored(0.01, 50.0), scored(0.03, 60.0), scored(0.1, 70.0), scored(0.3, None)))
    assert (end.best and end.best.setting, end.at_end) == ({"alpha": 0.1}, "")  # a larger one was tried, and diverged
    assert Tried(MH, (scored(0.01, 80.0), scored(0.03, 70.0))).at_end == "smallest"
    assert Tried(MH, (scored(0.01, None),)).best is None


def test_only_the_main_table_is_tuned(tmp_path: Path) -> None:
    refused(fedprior("reproduce", "gce", "--tuned", "--out", tmp_path / "out"), "--tuned is for table1 alone")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_quick(tmp_path: Path) -> None:
    planned = fedprior(*ASKED, "--plan", "--out", tmp_path, columns=200)
    assert planned.code == 0, planned.err
    assert "0 of 48 runs are done" in " ".join(
        planned.out.split()
    )  # Local, FedAvg and FedAvg+AM: 8 trials of 2 seeds each
    assert not list(tmp_path.iterdir())
    outcome = fedprior(*ASKED, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "quick" / "tuned"
    assert {path.name for path in folder.iterdir()} == {"reproduction.json", "cells", "records", "table1"}
    text = (folder / "table1" / "table1.md").read_text()
    assert text.count("everyone tuned on validation, 8 trials each") == 2
    assert "[" not in text.replace("[ ]", "")
    assert "| FedAvg+FT |" in text
    chosen = (folder / "table1" / "table1-chosen.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in chosen[1:]] == ["FedAvg", "FedAvg+AM", "Local"]
    before = contents(folder)
    assert fedprior(*ASKED, "--out", tmp_path).code == 0
    assert contents(folder) == before
    planned = fedprior(*ASKED, "--plan", "--out", tmp_path, columns=200)
    assert "3 of 3 runs are done" in " ".join(planned.out.split())  # those that follow the trials
