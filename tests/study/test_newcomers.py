"""Clients held out of training: who they are, what they get when they join, and that training does not know them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from program import Outcome, fedprior, refused
from toys import blobs, engine_of

import fedprior as fp
from fedprior.core.random import Purpose, key_for
from fedprior.core.vectors import row
from fedprior.data.federation import federate, part_newcomers
from fedprior.data.partitions import Partition
from fedprior.data.sources import load
from fedprior.data.view import ClientData
from fedprior.engine.evaluate import Evaluator
from fedprior.methods.fedavg import FedAvg
from fedprior.records.runs import RunFolder
from fedprior.records.schema import AVERAGES
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.results import Results
from fedprior.study.trial import Trial
from study.small import run

pytestmark = pytest.mark.xdist_group("newcomers")  # its fixture trains: once is enough

HELD_OUT = part_newcomers(20, 0.2)[1].tolist()
SETTINGS: dict[str, Any] = {"rounds": 2, "R": 2, "K": 2, "pooled": "never", "metrics": []}


@dataclass
class Joined:
    """A study with newcomers, and what the command line says of its records."""

    folder: Path
    results: Results
    outcome: Outcome

    def result(self, name: str) -> fp.Result:
        return self.results[name][0]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Joined:
    out = tmp_path_factory.mktemp("joined")
    results = fp.Study("digits-mclr", ["fedavg", "mh"], new_clients=0.2, **SETTINGS).run(out)
    given = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    outcome = fedprior(
        *("run", "digits-mclr", "-m", "fedavg", "-m", "mh", "--new-clients", 0.2, *given, "--json", "--resume"),
        *("--out", out),
    )
    assert outcome.code == 0, outcome.err
    return Joined(out / "digits-mclr", results, outcome)


@pytest.mark.slow
def test_newcomers_have_rows_of_their_own(joined: Joined) -> None:
    results = json.loads(joined.outcome.out)["results"]
    assert list(results) == ["local", "fedavg", "mh"]
    assert results == json.loads(json.dumps(joined.results.summary()["digits-mclr"]))  # Python and command line agree
    for method, about in results.items():
        models = ["newcomer"] if method == "local" else ["newcomer", "newcomer-global"]
        accuracies = about["metrics"]["accuracy"]
        scored = [name for name in accuracies if accuracies[name]["own"]["weighted"]["last"] is not None]
        assert [name for name in scored if name.startswith("new")] == models
        folder = RunFolder(joined.folder / method / "0")
        config = folder.config["run"]
        assert (config["task"]["new_clients"], config["newcomers"], config["clients"]) == (0.2, HELD_OUT, 16)
        each = folder.rows("clients.csv")
        trained = {r.client for r in each if r.model == "personal"}
        assert sorted([*trained, *HELD_OUT]) == list(range(20))
        for model in models:
            own = [r for r in each if r.model == model]
            assert [(r.round, r.data, r.client) for r in own] == [(2, "own", i) for i in HELD_OUT]
            accuracy, samples = np.array([r.values["accuracy"] for r in own]), np.array([r.samples for r in own])
            wanted = (np.average(accuracy, weights=samples), accuracy.mean(), accuracy.min())
            for average, value in zip(AVERAGES, wanted, strict=True):
                number = accuracies[model]["own"][average]
                assert number["last"]["mean"] == pytest.approx(value)
                assert (number["last10"], number["best"]) == (None, None)  # they were looked at once


def test_newcomers_are_in_the_table(joined: Joined) -> None:
    results = json.loads(joined.outcome.out)["results"]

    def shown(method: str) -> str:
        return f"{results[method]['metrics']['accuracy']['newcomer']['own']['weighted']['last']['mean']:.2f}"

    table = fedprior("table", joined.folder)
    assert max(map(len, table.out.splitlines())) <= 80
    assert [line.split()[:2] for line in table.out.splitlines() if line.strip().startswith("new")] == (
        [["newcomer", shown("local")], ["new", "both"], ["newcomer", shown("mh")], ["new", "global"]]
    )
    for format, words in (("markdown", "newcomer-global"), ("latex", "new global"), ("csv", "newcomer-global")):
        assert words in fedprior("table", joined.folder, "--format", format).out


@pytest.mark.parametrize("name", ["local", "fedavg", "mh"])
def test_joining_by_hand_gives_the_same(joined: Joined, name: str) -> None:
    result = joined.result(name)
    program = result.trial.program
    newcomers, method, problem = program.task.newcomers, program.method, program.task.problem
    assert newcomers is not None
    state, k = jax.device_get(result.state), 1
    parts = jax.random.split(key_for(jax.random.wrap_key_data(state.seed), Purpose.JOIN, 2, HELD_OUT[k]), 4)

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
            assert model not in {row.model for row in result.record.clients}
            continue
        logits = np.asarray(problem.logits(w, jnp.asarray(test.x[own])))
        (score,) = [row for row in result.record.clients if row[:4] == (2, model, "own", HELD_OUT[k])]
        assert score.values["accuracy"] == 100 * np.sum(logits.argmax(1) == test.y[own]) / test.size[k]
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        expected = -log_p[np.arange(len(log_p)), test.y[own]].mean()
        assert score.values["nll"] == pytest.approx(expected, rel=1e-5)
        assert score.samples == test.size[k]


def test_training_knows_nothing_of_newcomers(joined: Joined) -> None:
    """The run is that of a federation which never had them, and they do not see what other clients keep."""
    result = joined.result("mh")
    program, task = result.trial.program, result.trial.program.task
    whole = fp.task("digits-mclr").partition
    staying = [i for i in range(20) if i not in HELD_OUT]
    without = Partition(tuple(whole.train[i] for i in staying), tuple(whole.test[i] for i in staying), whole.y)
    settings = task.settings.model_copy(update={"new_clients": 0.0})
    federation = federate(load("digits"), without)
    other = replace(task, settings=settings, federation=federation, partition=without, newcomers=None)
    alone = run_trial(Trial(Program(other, program.variant), 0))
    assert list(alone.record.rows) == [row for row in result.record.rows if not row.model.startswith("newcomer")]
    same = jax.tree.map(np.array_equal, *(jax.device_get((r.state.server, r.state.clients)) for r in (alone, result)))
    assert all(jax.tree.leaves(same))

    evaluator, state = program.evaluator, result.state
    before = evaluator.newcomers(state)
    private = jax.tree.map(lambda x: x * 0 + 7, (state.clients, state.cursor))
    after = evaluator.newcomers(state._replace(clients=private[0], cursor=private[1]))
    zeros = evaluator.newcomers(state._replace(server=jax.tree.map(jnp.zeros_like, state.server)))
    for model, score in before.items():
        assert np.array_equal(score.sums["nll"], after[model].sums["nll"])
        assert not np.array_equal(score.sums["nll"], zeros[model].sums["nll"])


class Whispering(FedAvg):
    """Sends to each client it knows something else than to a stranger."""

    def send(self, outbox: Any, i: Any, key: Any) -> Any:
        return outbox if i is None else outbox * jnp.float32(i + 2)


def test_a_newcomer_is_sent_what_anyone_is_on_any_number_of_devices() -> None:
    problem, data = blobs()
    _, others = blobs((5, 300, 40), seed=1)
    scores = []
    for devices in (1, 2):
        engine = engine_of(problem, Whispering(R=1), data, batch_size=8, devices=jax.devices()[:devices])
        scores.append(Evaluator(engine, newcomers=others, metrics=[]).newcomers(engine.init(0)))
        assert np.array_equal(scores[-1]["newcomer"].sums["nll"], scores[-1]["newcomer-global"].sums["nll"])
        assert scores[-1]["newcomer"].count.tolist() == [5, 300, 40]
    assert np.array_equal(scores[0]["newcomer"].sums["nll"], scores[1]["newcomer"].sums["nll"])


def test_a_client_goes_by_its_number_in_the_partition(joined: Joined) -> None:
    result = joined.result("mh")
    last, federation = 18, result.trial.program.task.federation  # 19 is a newcomer
    assert federation.ids[-1] == last
    _, (model,) = result.personal_model(last)
    own = slice(int(federation.test.start[-1]), None)
    hit = np.argmax(np.asarray(model.logits(federation.test.x[own])), 1) == federation.test.y[own]
    (row,) = [row for row in result.record.clients if row[:4] == (2, "personal", "own", last)]
    assert 100 * np.sum(hit) / len(hit) == row.values["accuracy"]
    with pytest.raises(fp.FedpriorError, match=r"client 20 does not exist; valid: 0, 1, 3, .* \(20 in all\)"):
        result.personal_model(20)


def test_who_is_held_out() -> None:
    for n, part in ((2, 0.01), (2, 0.99), (7, 0.2), (100, 0.2)):
        staying, joining = part_newcomers(n, part)
        assert 1 <= len(joining) < n
        assert sorted([*staying, *joining]) == list(range(n))
        assert np.array_equal(joining, part_newcomers(n, part)[1])
    assert len(joining) == 20
    plain, held = (fp.task("digits-mclr", validation=0.3, new_clients=part) for part in (0.0, 0.2))
    assert plain.newcomers is None
    assert held.newcomers is not None
    assert repr(held) == "Task('digits-mclr': 16 clients and 4 newcomers, 10 classes)"
    for group in (held.federation, held.newcomers):  # each client has what it would have among all
        for name in ("train", "test", "validation"):
            mine, all_of_them = getattr(group, name), getattr(plain.federation, name)
            for k, i in enumerate(group.numbers):
                a = mine.x[mine.start[k] : mine.start[k] + mine.size[k]]
                b = all_of_them.x[all_of_them.start[i] : all_of_them.start[i] + all_of_them.size[i]]
                assert np.array_equal(a, b)


@pytest.mark.slow
def test_a_run_made_longer_equals_one_of_that_length(tmp_path: Path) -> None:
    """The shorter run's newcomers joined after its last round, which is not the longer run's."""
    options: dict[str, Any] = {"row": "mh:R=2,K=2", "new_clients": 0.4}
    run(tmp_path / "short", rounds=1, **options)
    run(tmp_path / "short", rounds=3, resume=True, **options)
    once = run(tmp_path / "once", rounds=3, **options)
    assert {row.round for row in once.record.rows if row.model == "newcomer"} == {3}
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
