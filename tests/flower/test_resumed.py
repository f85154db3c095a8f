"""A run that is gone on with: what it keeps, what it refuses, and who may be absent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from program import contents

from fedprior.errors import FedpriorError
from fedprior.flower.client import client_app
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from flower.example import NAMES, TASK, Deployment, Stop, at_once, killing, samples

ROW = "local"  # quick to compile


def killed(deployment: Deployment, at: int) -> RunFolder:
    nodes = deployment.nodes()
    nodes[1].tamper = killing(at)
    with pytest.raises(Stop):
        deployment.run(nodes)
    return deployment.records


def without(deployment: Deployment, *absent: str) -> Any:
    return [node for node in deployment.nodes() if node.name not in absent]


def scored(run: RunFolder, t: int) -> set[Any]:
    return {row.client for row in run.clients_of([t])}


def test_a_finished_run_is_left_as_it_is_whoever_is_there(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW, rounds=2, minimum=0)
    run = deployment.run()
    before = contents(run.path)
    assert deployment.run([], at_once(), resume=True, deadline=50.0).status == (Status.FINISHED, 2)
    assert contents(run.path) == before


@pytest.mark.slow
def test_a_longer_run_keeps_the_scores_of_sites_that_are_away(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW, rounds=2)
    run = deployment.run()
    last = [row for row in run.rows("metrics.csv") if row.round == 2]
    deployment.task.write_text(TASK.format(rounds=3, model="mclr"))
    deployment.run(without(deployment, "b"), at_once(), resume=True, deadline=50.0)
    assert [row for row in run.rows("metrics.csv") if row.round == 2] == last
    assert (scored(run, 2), scored(run, 3)) == (set(NAMES), set(NAMES) - {"b"})
    deployment.task.write_text(TASK.format(rounds=4, model="mclr"))
    deployment.run(resume=True)
    assert (scored(run, 3), scored(run, 4)) == (set(NAMES), set(NAMES))  # more of them than before, and each once
    assert run.record().status is Status.FINISHED  # and nothing in it is damaged


def test_a_run_without_its_checkpoints_is_not_begun_anew(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW)
    run = killed(deployment, at=2)
    shutil.rmtree(run.path / "checkpoints")
    before = contents(run.path)
    with pytest.raises(FedpriorError, match=r"holds no checkpoint, though rounds were done.*restore it from a copy"):
        deployment.run(resume=True)
    assert contents(run.path) == before


def test_one_site_with_other_samples_does_not_keep_the_others_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(tmp_path, ROW)
    killed(deployment, at=2)
    other = deployment.nodes()
    other[2].app = client_app(deployment.task, lambda node_config: samples(1))
    run = deployment.run(other, resume=True)
    assert (
        "client 'c/../d' has other samples than when the run began, and takes no part until they are back"
        in caplog.text
    )
    assert scored(run, 3) == set(NAMES) - {NAMES[2]}


def test_how_a_run_is_run_is_recorded_and_its_limit_stays(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW, rounds=2, norm_limit=10.0)
    run = killed(deployment, at=1)
    with pytest.raises(FedpriorError, match="was begun with norm-limit = 10, and now it is 0; go on with 10"):
        deployment.run(resume=True, norm_limit=0.0)
    deployment.run(resume=True, minimum=2, deadline=7.0)
    about = run.config["deployed"]
    assert (about["norm_limit"], about["minimum"], about["deadline"]) == (10.0, 2, 7.0)


def test_a_run_of_before_that_was_recorded_goes_on(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW, rounds=2)
    path = killed(deployment, at=1).path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "deployed": True}))
    assert deployment.run(resume=True, norm_limit=3.0).status == (Status.FINISHED, 2)


def test_more_replies_than_clients_are_drawn_cannot_be_asked_for(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW, minimum=4)
    with pytest.raises(
        FedpriorError, match=r"minimum = 4 .* since 3 of the 4 clients are drawn in a round; valid: 0 to 3"
    ):
        deployment.run()
    assert not deployment.records.exists


def test_a_run_that_is_stopped_says_when(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW, rounds=2, minimum=3, deadline=20.0)
    nodes = deployment.nodes()
    for node in nodes[1:]:
        node.tamper = lambda asked, reply: None if "order" in asked.content else reply
    with pytest.raises(FedpriorError, match="valid replies of 3; needed: 3"):
        deployment.run(nodes, at_once())
    (session,) = deployment.records.record().provenance or ()
    assert session.ended is not None
    assert deployment.records.status == (Status.STOPPED, 0)
