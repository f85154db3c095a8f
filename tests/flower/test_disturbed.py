"""What must change nothing: a stop and a resume, lost replies, orphans, new node numbers; and what must be said."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from fedprior.errors import FedpriorError
from fedprior.flower.client import client_app
from fedprior.flower.memory import MemoryGrid, Node
from fedprior.flower.options import Options
from fedprior.flower.server import serve
from fedprior.flower.spec import open_spec
from fedprior.flower.state import Store
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from flower.example import NAMES, NOW, TASK, Deployment, Stop, assert_same, killing, order_of, samples

ROW = "ditto"  # clients keep states, and there is a global model


def give(given: Any, node_config: Any) -> Any:
    return given


def nodes(deployment: Deployment, tamper: Any = None) -> list[Node]:
    made = [deployment.node(k) for k in range(len(NAMES))]
    if tamper is not None:
        made[1].tamper = tamper
    return made


@pytest.mark.parametrize("at", [*(pytest.param(t, marks=pytest.mark.slow) for t in (0, 1, 3)), 2])
def test_a_killed_server_resumes_to_the_same_bits(tmp_path: Path, at: int) -> None:
    deployment = Deployment(tmp_path, ROW)
    with pytest.raises(Stop):
        deployment.run(nodes(deployment, killing(at)))
    changed = reversed(nodes(deployment))  # every node has another number now
    assert_same(deployment, deployment.run(changed, resume=True), ROW)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, at: int) -> None:
    """The sites still have the states of the one before."""
    deployment = Deployment(tmp_path, ROW)
    with pytest.raises(Stop):
        deployment.run(nodes(deployment, killing(at)))
    newest = deployment.records.checkpoints[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    assert_same(deployment, deployment.run(resume=True), ROW)


@pytest.mark.slow
def test_a_lost_reply_is_asked_for_again_when_the_node_comes_back(tmp_path: Path) -> None:
    """Its state was written and never accepted: the client trains again from the state before."""
    deployment = Deployment(tmp_path, ROW)
    lost = iter([True])
    grid: list[MemoryGrid] = []

    def lose(asked: Message, reply: Message) -> Message | None:
        order = order_of(asked)
        if order is not None and order.round == 1 and next(lost, False):
            grid[0].nodes[99] = grid[0].nodes.pop(2)  # it comes back under another number
            return None
        return reply

    made = nodes(deployment, lose)
    grid.append(MemoryGrid(made, deployment.config))
    run = serve(grid[0], open_spec(deployment.task), Options.of(deployment.config), NOW)
    assert next(lost, None) is None
    assert_same(deployment, run, ROW)


def test_a_node_that_was_away_is_asked_again(tmp_path: Path) -> None:
    """It comes back under its own number, and knows nothing of the message that it had received."""
    deployment = Deployment(tmp_path, ROW)
    away: list[Node] = []
    grid: list[MemoryGrid] = []

    def die(asked: Message, reply: Message) -> Message | None:
        order = order_of(asked)
        if order is None or order.round != 1 or away:
            return reply
        away.append(grid[0].nodes.pop(2))
        return None

    waited = itertools.count()

    def come_back(seconds: float) -> None:
        if away and 2 not in grid[0].nodes and next(waited):  # the second time: it is seen to be away
            grid[0].nodes[2] = away[0]

    grid.append(MemoryGrid(nodes(deployment, die), deployment.config))
    patience = dataclasses.replace(NOW, sleep=come_back)
    run = serve(grid[0], open_spec(deployment.task), Options.of(deployment.config), patience)
    assert away
    assert_same(deployment, run, ROW)


class Refusing(MemoryGrid):
    """A SuperLink that does not take some messages to the second site; by its rounds, -1 for hello."""

    def __init__(self, *given: Any, rounds: list[int]):
        super().__init__(*given)
        self.rounds = rounds

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        (message,) = messages
        order = order_of(message)
        t = -1 if order is None else order.round
        if message.metadata.dst_node_id == 2 and t in self.rounds:
            self.rounds.remove(t)
            return []
        return super().push_messages([message])


def test_a_message_that_is_not_taken_keeps_no_round_waiting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its client is left out of this round at once; a greeting is sent again."""
    deployment = Deployment(tmp_path, "local", rounds=2)
    grid, naps = Refusing(deployment.nodes(), deployment.config, rounds=[-1, 1]), list[float]()
    patience = dataclasses.replace(NOW, deadline=10.0**6, sleep=naps.append)
    run = serve(grid, open_spec(deployment.task), Options.of(deployment.config), patience)
    assert grid.rounds == []
    assert len(naps) == 1  # for the second greeting
    assert "client 'b' could not be asked, and is asked again" in caplog.text
    assert "round 2, client 'b' is left out: the SuperLink did not take the message to it" in caplog.text
    assert {(row.round, row.client) for row in run.rows("clients.csv")} == {
        (t, name) for t in (1, 2) for name in NAMES
    } - {(1, "b")}


@pytest.mark.slow
def test_an_orphan_can_write_what_it_likes(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW)

    def write(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is not None and order.begin:
            store = Store(tmp_path / "disk-1", order.experiment, NAMES[1])
            store.write("00000099-orphan", {"client": np.ones(3), "cursor": np.int32(7)})
        return reply

    assert_same(deployment, deployment.run(nodes(deployment, write)), ROW)


@pytest.mark.slow
def test_only_two_states_are_kept(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW)
    deployment.run()
    for k in range(len(NAMES)):
        files = list((tmp_path / f"disk-{k}").rglob("*.safetensors"))
        states = [file for file in files if file.name.startswith("0000")]
        assert 1 <= len(states) <= 2
        assert len(files) == len(states) + 1  # and the client's own model
        assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


@pytest.mark.slow
def test_a_wiped_disk_is_said_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deployment = Deployment(tmp_path, ROW)

    def wipe(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is not None and order.round == 0:
            shutil.rmtree(tmp_path / "disk-1")
        return reply

    with caplog.at_level("INFO", "flwr"):
        run = deployment.run(nodes(deployment, wipe))
    assert "the state of client 'b' that the server asks for" in caplog.text
    assert "bring the file back" in caplog.text
    scored = {(row.round, row.client) for row in run.rows("clients.csv")}
    assert {client for t, client in scored if t == 3} == set(NAMES) - {"b"}


@pytest.mark.slow
def test_another_clients_state_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deployment = Deployment(tmp_path, ROW)

    def swap(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is not None and order.round == 0:
            (mine,) = (tmp_path / "disk-1").rglob("0000*.safetensors")
            (other,) = (tmp_path / "disk-0").rglob("0000*.safetensors")
            shutil.copy(other, mine)
        return reply

    deployment.run(nodes(deployment, swap))
    assert "another client's" in caplog.text


def test_what_never_began_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match="holds no run to go on with"):
        Deployment(tmp_path, ROW).run(resume=True)


@pytest.mark.slow
def test_a_run_can_be_made_longer_but_not_shorter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deployment = Deployment(tmp_path, ROW, rounds=2)
    run = deployment.run()
    deployment.task.write_text(TASK.format(rounds=1, model="mclr"))
    with pytest.raises(
        FedpriorError, match="is at round 2 already and cannot end at rounds = 1; give at least 2 rounds"
    ):
        deployment.run(resume=True, minimum=0)
    assert run.status == (Status.FINISHED, 2)
    deployment.task.write_text(TASK.format(rounds=3, model="mclr"))
    changed = json.loads((run.path / "config.json").read_text())
    changed["environment"]["jaxlib"] = "0.0.1"
    (run.path / "config.json").write_text(json.dumps(changed))
    assert_same(deployment, deployment.run(resume=True), ROW)
    assert run.config["run"]["protocol"]["rounds"] == 3
    assert "resuming with another jaxlib: '0.0.1' then" in caplog.text


@pytest.mark.slow
def test_two_servers_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW)

    def second(asked: Message, reply: Message) -> Message:
        with pytest.raises(FedpriorError, match="in use by process"):
            deployment.run(resume=True)
        return reply

    deployment.run(nodes(deployment, second))


def test_a_site_that_does_not_fit_is_named_and_no_run_begins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deployment = Deployment(tmp_path, ROW)
    x, y, is_test = samples(3)
    for given, text in (
        ((x[:, :4], y, is_test), "this site's samples are of shape (4,), and the federation's of (6,)"),
        ((x, np.where(y == "ill", "sick", y), is_test), "this site has a label 'sick'"),
        ((x[:0], y[:0], is_test[:0]), "this site has 0 samples"),
    ):
        odd = nodes(deployment)
        odd[3].app = client_app(deployment.task, partial(give, given))
        with pytest.raises(FedpriorError, match="4 clients are to take part, and 3 can"):
            deployment.run(odd)
        assert text in caplog.text
        assert not RunFolder(tmp_path / "runs" / "toy" / ROW / "0").exists


def test_a_node_without_a_name_is_refused(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, ROW)
    unnamed = [dataclasses.replace(deployment.node(0), name="")]
    with pytest.raises(FedpriorError, match="has no name"):
        deployment.run(unnamed)
