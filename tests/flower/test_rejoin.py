"""A site whose state is lost comes back as a newcomer when its owner says so, and never otherwise."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from program import fedprior, refused

from fedprior.core.random import Purpose, key_for
from fedprior.core.vectors import row
from fedprior.data.view import ClientData
from fedprior.errors import FedpriorError
from fedprior.flower.ledger import Ledger
from fedprior.flower.look import status_of
from fedprior.flower.memory import MemoryGrid, Node, Tamper
from fedprior.flower.messages import ROUND, Order, Receipt
from fedprior.flower.options import Options
from fedprior.flower.programs import Programs
from fedprior.flower.rejoin import Newcomers, allow
from fedprior.flower.server import serve
from fedprior.flower.spec import open_spec
from fedprior.flower.state import StateLost, Store
from fedprior.methods import METHODS
from fedprior.records import checkpoint
from fedprior.study.trial import Trial
from flower.example import (
    NAMES,
    NOW,
    Deployment,
    Stop,
    assert_ended,
    at_once,
    killing,
    order_of,
    same_arrays,
    simulated,
)

B = 1  # the site that loses its state
ROWS = [f"{name}:M=2" if name == "fedfomo" else name for name in METHODS if name != "scaffold"]


def with_tamper(deployment: Deployment, tamper: Tamper) -> list[Node]:
    nodes = deployment.nodes()
    nodes[B].tamper = tamper
    return nodes


def killed(deployment: Deployment, at: int) -> Path:
    """A run whose server was killed after so many rounds; the file of the second site's state."""
    with pytest.raises(Stop):
        deployment.run(with_tamper(deployment, killing(at)))
    _, ledger = deployment.server(deployment.records)
    return deployment.store(ledger, B).path(ledger.accepted[B])


def joined(trial: Trial, state: Any) -> Any:
    """The state of a simulation with the second client made anew, by what a method's author writes alone."""
    program, host = trial.program, trial.program.engine.placement.to_host(state)
    algorithm, problem = program.algorithm_at({}), program.task.problem

    @program.engine.compiler
    def anew(server: Any, seed: Any, t: Any) -> Any:
        send, order, join, _ = jax.random.split(key_for(jax.random.wrap_key_data(seed), Purpose.JOIN, t, B), 4)
        down = jax.lax.optimization_barrier(algorithm.send(algorithm.outbox(server), None, send))
        data = ClientData(program.task.federation.train, B, program.protocol.batch, order, 0)
        return algorithm.join(problem, down, data, join)

    cursor = np.array(host.cursor)
    cursor[B] = 0
    clients = host.clients
    if jax.tree.leaves(clients):  # else clients keep nothing, and there is nothing to make
        fresh = anew(host.server, host.seed, host.round)
        clients = jax.tree.map(
            lambda x, one: np.stack([one if k == B else x[k] for k in range(len(x))]), *jax.device_get((clients, fresh))
        )
    return program.engine.placement.from_host(host._replace(clients=clients, cursor=cursor))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_site_comes_back_as_a_newcomer(tmp_path: Path, name: str) -> None:
    """The run ends as a simulation in which one client's state is replaced by that of a newcomer."""
    model = "dnn" if name == "fedpac" else "mclr"
    deployment = Deployment(tmp_path, name, model=model)
    lost = killed(deployment, at=2)
    shutil.rmtree(tmp_path / f"disk-{B}")
    allow(lost)
    run = deployment.run(resume=True)

    trial, _ = simulated(name, model=model)
    rounds = trial.rounds(trial.init())
    next(rounds)
    state = joined(trial, next(rounds).state)
    rows = trial.rows(2, trial.evaluate(state, 2))  # the scores of round 2 ride on the messages with which it came back
    for done in trial.rounds(state):
        state = done.state
        rows += trial.rows(done.number, done.scores or {})
    assert_ended(deployment, run, trial, state)
    recorded = {row[:4]: row.values for row in run.rows("metrics.csv") if row.round >= 2}
    assert recorded == {row[:4]: row.values for row in rows}
    _, ledger = deployment.server(run)
    assert ledger.rejoined == {NAMES[B]: [2]}
    assert ledger.lost == []


@pytest.mark.slow
def test_only_who_asked_comes_back_and_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The site is lost in round 2, its owner says so in round 3, and it takes part again from round 4 on."""
    deployment = Deployment(tmp_path, "local", rounds=6)
    orders: list[Order] = []
    status: dict[int, str] = {}

    def lose(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is None:
            return reply
        orders.append(order)
        about = status_of(deployment.records.path)["clients"][B]
        status[order.round] = about["state"]
        lost = Receipt.from_content(reply.content, "receipt").lost
        assert lost == (order.round in (1, 2, 3) and not order.join)
        if order.round == 0:
            shutil.rmtree(tmp_path / f"disk-{B}")
        if lost and order.round == 2:
            state = Store(tmp_path / f"disk-{B}", order.experiment, order.client).path(order.begin)
            assert (
                f"`fedprior flower rejoin {shlex.quote(str(state))}` lets the site come back as a newcomer"
                in caplog.text
            )
            done = fedprior("flower", "rejoin", state)
            assert done.code == 0, done.err
        return reply

    run = deployment.run(with_tamper(deployment, lose))
    assert [(order.round, order.join) for order in orders] == [
        *((0, False), (1, False), (2, False), (3, False), (3, True)),
        *((4, False), (5, False), (6, False)),
    ]
    assert (
        len({order.begin for order in orders if 1 <= order.round <= 3}) == 1
    )  # until then the lost state is asked for
    assert [status[t] for t in range(1, 7)] == ["kept", "lost", "lost", *["began anew after round 3"] * 3]
    seen = {(row.round, row.client) for row in run.rows("clients.csv")}
    assert {t for t, client in seen if client == NAMES[B]} == {3, 4, 5, 6}
    _, ledger = deployment.server(run)
    assert (ledger.rejoined, ledger.lost, ledger.absent) == ({NAMES[B]: [3]}, [], {NAMES[B]: 2})
    assert not list((tmp_path / f"disk-{B}").rglob("*.rejoin"))
    assert "began anew after round 3" in fedprior("flower", "status", run.path).out

    trial, _ = simulated("local", rounds=6)  # nobody else is touched by it
    state = trial.init()
    for done in trial.rounds(state):
        state = done.state
    host = trial.program.engine.placement.to_host(state)
    for k in set(range(len(NAMES))) - {B}:
        own = {"client": row(host.clients, k), "cursor": host.cursor[k]}
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), own)
        same_arrays(
            {str(n): x for n, x in enumerate(jax.tree.leaves(own))},
            {str(n): x for n, x in enumerate(jax.tree.leaves(deployment.client(ledger, k, like)))},
        )


@pytest.mark.slow
def test_who_comes_back_for_the_last_scores_is_known(tmp_path: Path) -> None:
    """Then nothing is trained any more, and still the new state is kept and accepted."""
    deployment = Deployment(tmp_path, "ditto")
    lost = killed(deployment, at=3)
    shutil.rmtree(tmp_path / f"disk-{B}")
    allow(lost)
    run = deployment.run(resume=True)
    trial, _ = simulated("ditto")
    state = trial.init()
    for done in trial.rounds(state):
        state = done.state
    assert_ended(deployment, run, trial, joined(trial, state))
    assert deployment.server(run)[1].rejoined == {NAMES[B]: [3]}
    assert {row.client for row in run.rows("clients.csv") if row.round == 3} == set(NAMES)
    earlier = checkpoint.read(run.checkpoints[0])  # which may have to be gone back to
    assert earlier is not None
    assert deployment.server(run)[1].before == Ledger.from_array(earlier["ledger"]).accepted


@pytest.mark.slow
def test_a_lost_answer_of_one_who_comes_back_changes_nothing(tmp_path: Path) -> None:
    ends = []
    for name in ("once", "twice"):
        deployment = Deployment(tmp_path / name, "ditto")
        lost = killed(deployment, at=2)
        shutil.rmtree(tmp_path / name / f"disk-{B}")
        allow(lost)
        grid: list[MemoryGrid] = []
        missing = iter([name == "twice"])

        def lose(asked: Message, reply: Message, grid: Any = grid, missing: Any = missing) -> Message | None:
            if (order := order_of(asked)) is not None and order.join and next(missing, False):
                grid[0].nodes[99] = grid[0].nodes.pop(B + 1)  # it comes back under another number
                return None
            return reply

        config = {**deployment.config, "resume": True}
        grid.append(MemoryGrid(with_tamper(deployment, lose), config))
        run = serve(grid[0], open_spec(deployment.task), Options.of(config), NOW)
        assert next(missing, None) is None
        ends.append((deployment.server(run)[0], [row[:] for row in run.rows("clients.csv")]))
    same_arrays(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_what_is_lost_is_still_said_to_be_when_the_server_has_come_back(tmp_path: Path) -> None:
    """The server is killed after a site has lost its disk, and goes on while that site is away."""
    deployment = Deployment(tmp_path, "fedavg", rounds=4)

    def lose(asked: Message, reply: Message) -> Message | None:
        shutil.rmtree(tmp_path / f"disk-{B}", ignore_errors=True)
        return killing(3)(asked, reply)

    with pytest.raises(Stop):
        deployment.run(with_tamper(deployment, lose))
    assert status_of(deployment.records.path)["clients"][B]["state"] == "lost"
    there = [node for k, node in enumerate(deployment.nodes()) if k != B]
    run = deployment.run(there, at_once(), resume=True)
    assert status_of(run.path)["clients"][B]["state"] == "lost"


@pytest.mark.slow
def test_a_method_that_takes_nobody_back_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SCAFFOLD's server holds the mean of all control variates: one that is lost would stay in it."""
    deployment = Deployment(tmp_path, "scaffold:aggregated=4", rounds=2)

    def lose(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is None:
            return reply
        assert not order.join
        if order.round == 0:
            (state,) = (tmp_path / f"disk-{B}").rglob("0000*.safetensors")
            state.unlink()
            allow(state)
        elif order.round == 1:
            told = Receipt.from_content(reply.content, "receipt")
            assert told.lost
            assert not told.rejoin
            content = RecordDict(dict(reply.content))
            content["receipt"] = ConfigRecord({**dataclasses.asdict(told), "rejoin": True})  # it asks all the same
            return Message(content, reply_to=asked)
        return reply

    run = deployment.run(with_tamper(deployment, lose))
    assert "without it the site cannot come back into this run (the lost c_i would stay in c" in caplog.text
    assert "client 'b' is left out: its state is lost, and it cannot come back as a newcomer" in caplog.text
    _, ledger = deployment.server(run)
    assert (ledger.rejoined, ledger.lost) == ({}, [NAMES[B]])
    assert status_of(run.path)["clients"][B]["state"] == "lost"


def test_the_lost_variate_of_scaffold_would_stay_in_the_mean() -> None:
    """Why nobody can come back: c = mean c_i holds in every round, and never again once a c_i is set to zero."""
    trial, _ = simulated("scaffold", rounds=6)

    def gap(state: Any) -> float:
        host = trial.program.engine.placement.to_host(state)
        parts = zip(jax.tree.leaves(host.server.c), jax.tree.leaves(host.clients), strict=True)
        return sum(
            float(np.abs(np.asarray(c) - np.mean(np.asarray(own)[: len(NAMES)], axis=0)).sum()) for c, own in parts
        )

    rounds = trial.rounds(trial.init())
    state = next(done.state for done in rounds if done.number == 2)
    assert gap(state) < 1e-5
    state = joined(trial, state)
    lost = gap(state)
    assert lost > 1e-2
    for done in trial.rounds(state):
        state = done.state
    assert np.isclose(gap(state), lost, rtol=1e-3)


@pytest.mark.slow
def test_a_server_cannot_make_a_site_begin_anew(tmp_path: Path) -> None:
    """Its owner has not said so, whether the state is lost or not."""
    deployment = Deployment(tmp_path, "ditto", rounds=1)
    nodes = deployment.nodes()
    said: list[str] = []

    def force(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is not None and order.round == 1 and not said:
            content = RecordDict(dict(asked.content))
            content["order"] = dataclasses.replace(order, join=True, save="00000002-forced").to_record()
            content["welcome"] = content["down"]
            context = Context(1, B + 1, nodes[B].node_config, RecordDict(), dict(deployment.config))
            for lost in (False, True):
                if lost:
                    Store(tmp_path / f"disk-{B}", order.experiment, order.client).path(order.begin).unlink()
                answer = nodes[B].app(Message(content, B + 1, ROUND), context)
                said.append(Receipt.from_content(answer.content, "receipt").problem)
        return reply

    nodes[B].tamper = force
    deployment.run(nodes)
    assert said == ["it was told to begin anew, which its owner has not asked for"] * 2
    assert not list(tmp_path.rglob("*forced*"))


def test_what_is_not_lost_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "states", f"{'0' * 8}-{'1' * 16}", "St. A")
    name = f"00000003-{'ab' * 8}"
    store.write(name, {"w": np.ones(2)})
    refused(fedprior("flower", "rejoin", store.path(name)), "is there and whole, so that nothing is lost")
    assert not store.may_rejoin(name)
    for path in (
        tmp_path / "notes.txt",
        store.folder / "latest.safetensors",
        store.folder.with_name("St. A") / f"{name}.safetensors",  # a client's folder has another name
        Path(f"{name}.safetensors"),
    ):
        with pytest.raises(FedpriorError, match="is not the file of a site's state"):
            allow(path)

    store.path(name).write_bytes(b"damaged")
    with pytest.raises(StateLost):
        store.read(name, {"w": np.ones(2)})
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(FedpriorError, match="belongs to another user"):
        allow(store.path(name))
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "states")
    allow(store.path(name))
    assert store.may_rejoin(name)
    assert not store.may_rejoin(f"00000003-{'cd' * 8}")
    assert store.marker(name).stat().st_mode & 0o777 == 0o600
    store.sweep(f"00000003-{'cd' * 8}")
    assert store.may_rejoin(name)
    store.sweep(f"00000004-{'cd' * 8}")
    assert not store.may_rejoin(name)


def test_newcomers_of_another_kind_are_refused() -> None:
    """A method of one's own, whose newcomers keep something else than its clients do."""
    trial, _ = simulated("ditto")
    assert Newcomers(Programs(trial.program, len(NAMES))).refusal == ""
    other = Newcomers(Programs(trial.program, len(NAMES)))
    other.algorithm = other.algorithm._replace(join=lambda problem, down, data, key: (down, key))
    assert other.refusal == "the state of the method's newcomers is not like that of its clients"
