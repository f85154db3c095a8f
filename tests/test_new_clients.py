"""Clients held out of training: who they are, what they get when they join, and that training does not know them."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from program import Outcome, fedprior, refused
from toys import blobs

import fedprior as fp
from fedprior.data.clients import ClientData, federate, part_newcomers
from fedprior.data.partition import Partition
from fedprior.engine import Engine
from fedprior.evaluate import AVERAGES, Evaluator
from fedprior.experiment import Task, configure, open_task
from fedprior.methods import make
from fedprior.methods.fedavg import FedAvg
from fedprior.run import Trial
from fedprior.streams import Stream, stream
from fedprior.vectors import row

pytestmark = pytest.mark.xdist_group("new-clients")  # its fixtures train: once is enough

HELD_OUT = part_newcomers(20, 0.2)[1].tolist()


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("joined")
    outcome = fedprior(
        *("run", "digits-mclr", "-m", "fedavg", "-m", "pfedme", "-m", "mh", "--rounds", 2, "--set", "R=2"),
        *("--set", "K=2", "--new-clients", 0.2, "--json", "--out", out),
    )
    assert outcome.code == 0, outcome.err
    return out / "digits-mclr", outcome


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_newcomers_have_rows_of_their_own(joined: tuple[Path, Outcome]) -> None:
    folder, outcome = joined
    results = json.loads(outcome.out)["results"]
    assert list(results) == ["local", "fedavg", "pfedme", "mh"]
    for method, found in results.items():
        models = ["newcomer"] if method == "local" else ["newcomer", "newcomer-global"]
        assert [name for name in found if name.startswith("new")] == models
        config = json.loads((folder / method / "0" / "config.json").read_text())["run"]
        assert (config["new_clients"], config["newcomers"], config["clients"]) == (0.2, HELD_OUT, 16)
        each = rows(folder / method / "0" / "clients.csv")
        trained = {int(r["client"]) for r in each if r["model"] == "personal"}
        assert sorted([*trained, *HELD_OUT]) == list(range(20))
        for model in models:
            own = [r for r in each if r["model"] == model]
            assert [(r["round"], r["data"], int(r["client"])) for r in own] == [("2", "own", i) for i in HELD_OUT]
            accuracy, samples = (np.array([float(r[column]) for r in own]) for column in ("accuracy", "samples"))
            wanted = (np.average(accuracy, weights=samples), accuracy.mean(), accuracy.min())
            for average, value in zip(AVERAGES, wanted, strict=True):
                number = found[model]["own"][average]
                assert number["last"]["mean"] == pytest.approx(value)
                assert (number["last10"], number["best"]) == (None, None)  # they were looked at once
    table = fedprior("table", folder)
    assert max(map(len, table.out.splitlines())) <= 80
    assert [line.split()[:2] for line in table.out.splitlines() if line.strip().startswith("new")] == (
        [["newcomer", f"{results['local']['newcomer']['own']['weighted']['last']['mean']:.2f}"]]
        + [
            pair
            for method in ("fedavg", "pfedme", "mh")
            for pair in (
                ["newcomer", f"{results[method]['newcomer']['own']['weighted']['last']['mean']:.2f}"],
                ["new", "global"],
            )
        ]
    )
    for format in ("markdown", "latex", "csv"):
        assert "newcomer-global" in fedprior("table", folder, "--format", format).out


def digits(new_clients: float = 0.2, **changes: Any) -> tuple[Task, dict[str, fp.Method]]:
    settings = {"rounds": 2, "R": 2, "K": 2, "pooled": "never", "new_clients": new_clients, **changes}
    experiment, built = configure("digits-mclr", ["local", "fedavg", "mh"], settings)
    return open_task(experiment), built


@pytest.fixture(scope="module")
def trained() -> dict[str, tuple[Trial, fp.Result]]:
    task, built = digits()
    trials = {name: Trial(task, method, name) for name, method in built.items()}
    return {name: (trial, trial.run(0)) for name, trial in trials.items()}


@pytest.mark.parametrize("name", ["local", "fedavg", "mh"])
def test_joining_by_hand_gives_the_same(trained: dict[str, tuple[Trial, fp.Result]], name: str) -> None:
    trial, result = trained[name]
    newcomers, method, problem = trial.task.newcomers, trial.method, trial.task.problem
    assert newcomers is not None
    state, k = jax.device_get(result.state), 1
    parts = jax.random.split(stream(jax.random.wrap_key_data(state.seed), Stream.JOIN, 2, HELD_OUT[k]), 4)

    @jax.jit
    def join(server: Any) -> Any:
        down = method.send(server, None, parts[0])
        data = ClientData(newcomers.train, k, 20, parts[1], 0)
        client = method.join(problem, down, data, parts[2])
        return method.personal_model(problem, client, down, data, parts[3])

    weights, models = join(state.server)
    test = newcomers.test
    own = slice(test.start[k], test.start[k] + test.size[k])
    assert weights.tolist() == [1.0]
    for model, w in (("newcomer", row(models, 0)), ("newcomer-global", method.global_model(state.server))):
        if w is None:
            assert (2, model, "own") not in result.scores
            continue
        logits = np.asarray(problem.logits(w, test.x[own]))
        score = result.scores[2, model, "own"]
        assert score.correct[k] == np.sum(logits.argmax(1) == test.y[own])
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        assert score.loss[k] == pytest.approx(-log_p[np.arange(len(log_p)), test.y[own]].sum(), rel=1e-5)
        assert score.count[k] == test.size[k]


def test_training_knows_nothing_of_newcomers(trained: dict[str, tuple[Trial, fp.Result]]) -> None:
    """The run is that of a federation which never had them, and they do not see what other clients keep."""
    trial, result = trained["mh"]
    task, whole = trial.task, open_task(configure("digits-mclr", [])[0]).partition
    staying = [i for i in range(20) if i not in HELD_OUT]
    without = Partition(tuple(whole.train[i] for i in staying), tuple(whole.test[i] for i in staying), whole.y)
    source = fp.experiment.load("digits")
    experiment = task.experiment.model_copy(update={"new_clients": 0.0})
    alone = Trial(Task(experiment, federate(source, without), task.problem, without), trial.method, "mh").run(0)
    assert alone.rows == [row for row in result.rows if not row[1].startswith("newcomer")]
    same = jax.tree.map(np.array_equal, *(jax.device_get((r.state.server, r.state.clients)) for r in (alone, result)))
    assert all(jax.tree.leaves(same))

    before = trial.evaluator.newcomers(result.state)
    private = jax.tree.map(lambda x: x * 0 + 7, (result.state.clients, result.state.cursor))
    after = trial.evaluator.newcomers(result.state._replace(clients=private[0], cursor=private[1]))
    other = trial.evaluator.newcomers(result.state._replace(server=jax.tree.map(jnp.zeros_like, result.state.server)))
    for model, score in before.items():
        assert np.array_equal(score.loss, after[model].loss)
        assert not np.array_equal(score.loss, other[model].loss)


@dataclass(frozen=True)
class Whispering(FedAvg):
    """Sends to each client it knows something else than to a stranger."""

    def send(self, server: Any, i: Any, key: Any) -> Any:
        return server if i is None else server * jnp.float32(i + 2)


def test_a_newcomer_is_sent_what_anyone_is_on_any_number_of_devices() -> None:
    problem, data = blobs()
    _, others = blobs((5, 300, 40), seed=1)
    found = []
    for devices in (1, 2):
        engine = Engine(problem, Whispering(R=1), data, batch_size=8, devices=jax.devices()[:devices])
        found.append(Evaluator(engine, newcomers=others).newcomers(engine.init(0)))
        assert np.array_equal(found[-1]["newcomer"].loss, found[-1]["newcomer-global"].loss)
        assert found[-1]["newcomer"].count.tolist() == [5, 300, 40]
    assert np.array_equal(found[0]["newcomer"].loss, found[1]["newcomer"].loss)


def test_a_client_goes_by_its_number_in_the_partition(trained: dict[str, tuple[Trial, fp.Result]]) -> None:
    trial, result = trained["mh"]
    last, federation = 18, trial.task.federation  # 19 is a newcomer
    assert federation.numbers[-1] == last
    _, (model,) = result.personal_model(last)
    own = slice(int(federation.test.start[-1]), None)
    hits = np.sum(np.argmax(np.asarray(model.logits(federation.test.x[own])), 1) == federation.test.y[own])
    assert hits == result.scores[2, "personal", "own"].correct[-1]
    with pytest.raises(fp.FedpriorError, match=f"client {HELD_OUT[0]} was held out of training"):
        result.personal_model(HELD_OUT[0])
    with pytest.raises(fp.FedpriorError, match="client 20 does not exist; valid: 0 to 18"):
        result.personal_model(20)


def test_who_is_held_out() -> None:
    for n, part in ((2, 0.01), (2, 0.99), (7, 0.2), (100, 0.2)):
        staying, joining = part_newcomers(n, part)
        assert 1 <= len(joining) < n
        assert sorted([*staying, *joining]) == list(range(n))
        assert np.array_equal(joining, part_newcomers(n, part)[1])
    assert len(joining) == 20
    plain, held = digits(0.0, validation=0.3)[0], digits(validation=0.3)[0]
    assert plain.newcomers is None
    assert held.newcomers is not None
    for part in (held.federation, held.newcomers):  # each client has what it would have among all
        for name in ("train", "test", "validation"):
            mine, all_of_them = getattr(part, name), getattr(plain.federation, name)
            for k, i in enumerate(part.numbers):
                a = mine.x[mine.start[k] : mine.start[k] + mine.size[k]]
                b = all_of_them.x[all_of_them.start[i] : all_of_them.start[i] + all_of_them.size[i]]
                assert np.array_equal(a, b)


@pytest.mark.slow
def test_a_run_made_longer_equals_one_of_that_length(tmp_path: Path) -> None:
    """The shorter run's newcomers joined after its last round, which is not the longer run's."""
    y = np.arange(90) % 3
    x = np.eye(3)[y] + np.random.default_rng(0).normal(size=(90, 3))
    task = fp.task_from_arrays(
        x, y, np.arange(90) % 6, lambda key: eqx.nn.Linear(3, 3, key=key), rounds=3, aggregated=2, new_clients=0.4
    )
    short = replace(task, experiment=task.experiment.model_copy(update={"rounds": 1}))
    Trial(short, make("mh", R=2, K=2), "mh").run(0, tmp_path / "short")
    trial = Trial(task, make("mh", R=2, K=2), "mh")
    trial.run(0, tmp_path / "short", resume=True)
    once = trial.run(0, tmp_path / "once")
    assert {row[0] for row in once.rows if row[1] == "newcomer"} == {3}
    for table in ("metrics.csv", "clients.csv", "config.json"):
        assert (tmp_path / "short" / table).read_bytes() == (tmp_path / "once" / table).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--new-clients", "1"], ["new_clients: input should be less than 1"]),
        (["--new-clients", "-0.2"], ["new_clients: input should be greater than or equal to 0"]),
        (["--new-clients", "some"], ["'--new-clients'", "'some'"]),
        (["--set", "new_clients=nan"], ["new_clients: input should be"]),
        (["--new-clients", "0.9"], ["aggregated = 4", "there are 2 besides 18 newcomers", "valid: 1 to 2"]),
        (["--new-clients", "0.2", "--set", "partition.clients=1"], ["new_clients = 0.2", "only one client"]),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    refused(fedprior("run", "digits-mclr", "-m", "mh", *arguments, "--out", tmp_path / "out"), *parts)
    assert not list(tmp_path.iterdir())
