"""A federation of a few small sites, deployed in memory and simulated from the same samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import Message

import fedprior as fp
from fedprior.core.vectors import row
from fedprior.flower.client import client_app
from fedprior.flower.ledger import Ledger
from fedprior.flower.memory import MemoryGrid, Node, Tamper
from fedprior.flower.messages import Order
from fedprior.flower.options import Options
from fedprior.flower.programs import Programs
from fedprior.flower.roster import Patience
from fedprior.flower.server import serve
from fedprior.flower.spec import METRICS, open_spec
from fedprior.flower.state import Store
from fedprior.models import build
from fedprior.records import checkpoint
from fedprior.records.runs import RunFolder
from fedprior.study.program import Program
from fedprior.study.trial import Trial
from fedprior.study.variant import Variant

NAMES = ("St. A", "b", "c/../d", "é")
ALL = (*NAMES, "ö", "ü")  # where four are not enough
SIZES = (23, 40, 17, 33, 29, 20)
CLASSES = ["ill", "well", "unsure"]
TASK = """
rounds = {rounds}
aggregated = 3
batch = 5
eval_every = 1

[sites]
shape = [6]
classes = ["ill", "well", "unsure"]

[model]
name = "{model}"
"""
NOW = Patience(deadline=5.0, poll=0.0, handover=0.0, sleep=lambda seconds: None)


def at_once() -> Patience:
    """Patience that is soon at its end, without waiting."""
    ticks = itertools.count()
    return Patience(poll=0.0, clock=lambda: float(next(ticks)), sleep=lambda seconds: None)


def samples(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The samples of site k: x, labels by name, and which are for testing."""
    rng = np.random.default_rng(k)
    y = rng.integers(0, 3, SIZES[k])
    x = rng.normal(size=(SIZES[k], 6)) + 1.5 * np.eye(3, 6)[y] + 0.3 * k
    return x.astype(np.float32), np.array(CLASSES)[y], np.arange(SIZES[k]) % 4 == 0


class Stop(BaseException):
    """As if the server's process were killed."""


def order_of(message: Message) -> Order | None:
    """What a message orders; None: it is a greeting."""
    return Order.from_content(message.content, "order") if "order" in message.content else None


def killing(at: int) -> Tamper:
    """Kill the server when so many rounds are done."""

    def kill(asked: Message, reply: Message) -> Message:
        if (order := order_of(asked)) is not None and order.round == at:
            raise Stop
        return reply

    return kill


class Deployment:
    """Sites in memory, their disks below a folder, and a server's records."""

    def __init__(
        self, folder: Path, row: str, rounds: int = 3, model: str = "mclr", sites: int = len(NAMES), **config: Any
    ):
        self.folder, self.row, self.names = folder, row, ALL[:sites]
        folder.mkdir(parents=True, exist_ok=True)
        self.task = folder / "toy.toml"
        self.task.write_text(TASK.format(rounds=rounds, model=model))
        self.config: dict[str, Any] = {"row": row, "clients": sites, "out": str(folder / "runs"), **config}

    def node(self, k: int) -> Node:
        """Site k."""
        app = client_app(self.task, lambda node_config: samples(k))
        return Node(self.names[k], app, {"state-dir": str(self.folder / f"disk-{k}")})

    def nodes(self) -> list[Node]:
        """All sites."""
        return [self.node(k) for k in range(len(self.names))]

    def run(self, nodes: Iterable[Node] | None = None, patience: Patience = NOW, **config: Any) -> RunFolder:
        """Deploy it."""
        merged = {**self.config, **config}
        grid = MemoryGrid(self.nodes() if nodes is None else nodes, merged)
        return serve(grid, open_spec(self.task), Options.of(merged), patience)

    def server(self, run: RunFolder) -> tuple[Any, Ledger]:
        """The server's last state, and what it knows of the clients."""
        arrays = checkpoint.read(run.checkpoints[-1])
        assert arrays is not None
        ledger = Ledger.from_array(arrays.pop("ledger"))
        return arrays, ledger

    @property
    def records(self) -> RunFolder:
        """The server's records, whether or not it came to its end."""
        return RunFolder(self.folder / "runs" / "toy" / Variant.parse(self.row).name / "0")

    def store(self, ledger: Ledger, k: int) -> Store:
        """The states of client k on its disk."""
        return Store(self.folder / f"disk-{k}", ledger.experiment, self.names[k])

    def client(self, ledger: Ledger, k: int, like: Any) -> Any:
        """The last state of client k on its disk."""
        return self.store(ledger, k).read(ledger.accepted[k], like)


def simulated(
    row_name: str, rounds: int = 3, model: str = "mclr", seed: int = 0, sites: int = len(NAMES), **settings: Any
) -> tuple[Trial, Any]:
    """The same federation in a simulation: the trial and its last state, after a run in memory."""
    parts = [samples(k) for k in range(sites)]
    x, y, is_test = (np.concatenate(part) for part in zip(*parts, strict=True))
    who = np.repeat(np.array(ALL[:sites], object), SIZES[:sites])
    number = {name: k for k, name in enumerate(CLASSES)}
    task = fp.task_from_arrays(
        x,
        np.array([number[label] for label in y]),
        who,
        lambda key: build(model, {}, (6,), 3, None, key),
        name="toy",
        is_test=is_test,
        n_classes=3,
        **{"rounds": rounds, "aggregated": 3, "batch": 5, "pooled": "never", "metrics": list(METRICS), **settings},
    )
    trial = Trial(Program(task, Variant.parse(row_name)), seed)
    return trial, task


def assert_same(deployment: Deployment, run: RunFolder, row_name: str, **settings: Any) -> None:
    """The deployed run ended with the bits of the simulated one."""
    trial, _ = simulated(row_name, **settings)
    state, rows, clients = trial.init(), [], []
    for done in trial.rounds(state):
        state = done.state
        rows += trial.rows(done.number, done.scores or {})
        clients += trial.client_rows(done.number, done.scores or {})
    assert_ended(deployment, run, trial, state)
    for table, expected in (("metrics.csv", rows), ("clients.csv", clients)):
        assert {row[:4]: row.values for row in run.rows(table)} == {row[:4]: row.values for row in expected}


def assert_ended(deployment: Deployment, run: RunFolder, trial: Trial, state: Any) -> None:
    """The server and its clients have the state of a simulation."""
    arrays, ledger = deployment.server(run)
    host = trial.program.engine.placement.to_host(state)
    same_arrays(checkpoint.pack({"state": host._replace(clients=(), cursor=())}), arrays)
    like = Programs(trial.program, len(ledger.names)).like["client"]
    for k in range(len(ledger.names)):
        own = {"client": row(host.clients, k), "cursor": host.cursor[k]}
        if ledger.accepted[k]:
            same_arrays(checkpoint.pack(own), checkpoint.pack(deployment.client(ledger, k, like)))
        else:
            assert host.cursor[k] == 0


def same_arrays(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(np.asarray(jax.device_get(one[name])), np.asarray(other[name])), name
