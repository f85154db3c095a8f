"""Cells of a study: how they stand, and as plain data for another process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import config

import fedprior as fp
from fedprior.methods import make
from fedprior.priors.means import find_mean
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status, Times
from fedprior.study.cells import job_of
from fedprior.study.settings import read
from fedprior.study.task import open_task
from study.small import share, small_task

OPTIONS = {"resume": False, "overwrite": False, "checkpoint_seconds": 30.0}


def study(seeds: int = 3, rows: Any = ("fedavg:R=1", "local:R=1"), **settings: Any) -> fp.Study:
    return fp.Study(small_task(), list(rows), local=False, seeds=seeds, **settings)


def pretend(folder: Path, content: dict[str, Any], seconds: list[float], status: Status | None = None) -> None:
    """Records of rounds that nobody ran."""
    run = RunFolder(folder)
    run.begin(content)
    for t, each in enumerate(seconds, 1):
        run.append([], [], Times(t, each / 2, each / 2))
    if status is not None:
        run.set_status(status, len(seconds))


def test_a_plan_says_what_is_done_and_the_time_left(tmp_path: Path) -> None:
    planned = study()
    fresh = planned.plan(tmp_path)
    assert [(c.variant, c.seed) for c in fresh.cells] == [
        (v, s) for v in ("fedavg R=1", "local R=1") for s in (0, 1, 2)
    ]
    assert {(c.task, c.rounds, c.done, c.status, c.seconds_left) for c in fresh.cells} == {
        ("arrays", 6, 0, "to do", None)
    }
    assert fresh.seconds_left is None
    assert planned.plan().cells == fresh.cells  # without a folder there is nothing to look at
    cells = planned.cells(tmp_path)
    for k, (seconds, status) in enumerate([([2.0] * 6, Status.FINISHED), ([4.0, 4.0], None)]):
        assert cells[k].folder == tmp_path / "arrays" / "fedavg R=1" / str(k)
        pretend(tmp_path / "arrays" / "fedavg R=1" / str(k), cells[k].trial.config(), seconds, status)
    later = planned.plan(tmp_path)
    assert [(c.done, c.status, c.seconds_left) for c in later.cells] == [
        (6, "finished", 0.0),
        (2, "running", 4 * 2.5),  # the mean of the row's eight rounds
        (0, "to do", 6 * 2.5),
        *[(0, "to do", None)] * 3,  # of this row nothing is known yet
    ]
    assert later.seconds_left is None
    for k, status in ((3, Status.DIVERGED), (4, Status.STOPPED), (5, Status.FINISHED)):
        seconds = [1.0] * (6 if status == Status.FINISHED else 3)
        pretend(tmp_path / "arrays" / "local R=1" / str(k - 3), cells[k].trial.config(), seconds, status)
    last = planned.plan(tmp_path)
    assert [(c.done, c.status, c.seconds_left) for c in last.cells[3:]] == [
        (3, "diverged", 0.0),
        (3, "stopped", 3.0),
        (6, "finished", 0.0),
    ]
    assert last.seconds_left == 10 + 15 + 3
    longer = share(study(rounds=8), planned).plan(tmp_path)
    assert [(c.rounds, c.done, c.seconds_left) for c in longer.cells[:2]] == [(8, 6, 5.0), (8, 2, 15.0)]


def test_another_run_in_a_cell_s_folder_is_not_taken_for_it(tmp_path: Path) -> None:
    planned = study(1)
    pretend(tmp_path / "arrays" / "fedavg R=1" / "0", config(), [1.0] * 6, Status.FINISHED)
    assert [(c.status, c.done, c.seconds_left) for c in planned.plan(tmp_path).cells] == [
        ("other settings", 0, None),
        ("to do", 0, None),
    ]


def test_a_cell_is_plain_data(tmp_path: Path) -> None:
    task = fp.task("digits-mclr", lam=3.0, **{"partition.clients": 4}).with_protocol(rounds=3, metrics=["brier"])
    study = fp.Study(task, ["mh:beta=2,R=2", "mh:aggregated=2,budget.gradients=480"], local=False, seeds=[5])
    cells = study.cells(tmp_path)
    jobs = [job_of(cell, OPTIONS) for cell in cells]
    assert json.loads(json.dumps(jobs)) == jobs
    assert (jobs[0]["seed"], jobs[0]["folder"]) == (5, str(tmp_path / "digits-mclr" / "mh beta=2 R=2" / "5"))
    assert str(cells[0]) == "digits-mclr, mh beta=2 R=2, seed 5"
    for cell, job in zip(cells, jobs, strict=True):  # another process builds the same
        opened, variant = open_task(read(job["task"])), fp.Variant(**job["variant"])
        assert (opened.settings, opened.protocol, opened.defaults) == (task.settings, task.protocol, task.defaults)
        assert opened.federation.n_clients == 4
        assert variant == cell.trial.program.variant


def test_what_no_other_process_can_build_is_refused(tmp_path: Path) -> None:
    def refuse(message: str, task: fp.Task, row: Any = "mh", out: Path | None = tmp_path) -> None:
        (cell,) = fp.Study(task, [row], local=False).cells(out)
        with pytest.raises(fp.FedpriorError, match=message):
            job_of(cell, OPTIONS)

    digits = fp.task("digits-mclr")
    refuse("the task 'arrays' was made from arrays, which no other process has", small_task())
    refuse("need a folder for their records; give out=", digits, out=None)
    refuse("holds a method object, which no other process can build", digits, make("mh", alpha=0.05, alpha_m=0.05))
    refuse("holds a setting that no other process can build", digits, fp.Variant.of("mh", mean=find_mean("lg")))
    own = replace(digits, select=lambda key, t, sizes, count: sizes[:count] * 0)
    (cell,) = share(fp.Study(digits, ["mh"], local=False)).cells(tmp_path)
    cell.trial.program.task = own
    with pytest.raises(fp.FedpriorError, match="has a selection of its own, which no other process has"):
        job_of(cell, OPTIONS)
