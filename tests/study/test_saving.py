"""A model saved from a run is the very one that was scored: to the bit, in another process, for newcomers too."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior as fp
from fedprior.core.batch import SAMPLES_PER_STEP, Batch
from fedprior.data.decode import token_ids
from fedprior.data.federation import Federation
from fedprior.data.sources import SOURCES, Source, from_arrays
from fedprior.engine.evaluate import everything
from fedprior.models.classifier import log_probabilities
from fedprior.records.runs import MemoryRun
from fedprior.study.program import Program
from fedprior.study.trial import Trial

pytestmark = [pytest.mark.bits, pytest.mark.xdist_group("saving")]  # its fixture trains: once is enough

WHO = np.array(["St. C", "a/b", "two\nlines", "4"], object)


def build(key: jax.Array) -> eqx.Module:
    return eqx.nn.MLP(3, 3, 8, 1, key=key)


def hospitals() -> fp.Task:
    """Four clients, of whom one joins later; the first has more test samples than a chunk has."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(4), [400, 30, 20, 20])
    y = rng.integers(0, 3, len(who))
    x = (2 * np.eye(3)[(y + who) % 3] + rng.normal(size=(len(who), 3))).astype(np.float32)
    labels = np.array(["ill", "well", "?"])[y]
    options: dict[str, Any] = {"rounds": 2, "batch": 8, "pooled": "never", "metrics": [], "new_clients": 0.25}
    return fp.task_from_arrays(x, labels, WHO[who], build, test_fraction=0.4, validation=0.2, **options)


MH, FEDEM = "mh:R=1,K=2", "fedem:M=3,R=1"


@functools.cache
def trained(method: str) -> fp.Result:
    return fp.run(the_task(), method)[0]


@functools.cache
def the_task() -> fp.Task:
    return hospitals()


def test_samples(federation: Federation, k: int) -> tuple[np.ndarray, np.ndarray]:
    own = slice(int(federation.test.start[k]), int(federation.test.start[k] + federation.test.size[k]))
    return np.asarray(federation.test.x[own]), np.asarray(federation.classes)[np.asarray(federation.test.y[own])]


test_samples.__test__ = False  # type: ignore[attr-defined]


@functools.cache
def evaluation(method: str, joins: bool) -> Any:
    """The program that makes a client's model and scores it, but for what it does with the log-probabilities."""
    program = trained(method).trial.program
    evaluator, problem, newcomers = program.evaluator, program.engine.problem, program.task.newcomers
    assert newcomers is not None
    whose = newcomers if joins else program.task.federation

    @jax.jit
    def evaluate(k: jax.Array, sent: Any, clients: Any, train: Any, test: Any) -> jax.Array:
        if joins:
            mixture = evaluator._joined(problem, sent, train, k, jnp.asarray(newcomers.numbers)[k])
        else:
            mixture = evaluator._personal(problem, sent, train, k, jax.tree.map(lambda x: x[k], clients))

        def ask(found: tuple[jax.Array, jax.Array], batch: Batch) -> tuple[jax.Array, jax.Array]:
            step, log_p = found
            part = log_probabilities(problem, mixture, batch.x)
            return step + 1, jax.lax.dynamic_update_index_in_dim(log_p, part, step, 0)

        steps = -(-int(whose.test.size.max()) // SAMPLES_PER_STEP)
        empty = jnp.zeros((steps, SAMPLES_PER_STEP, len(whose.classes)))
        return everything(test, k).fold(ask, (jnp.int32(0), empty))[1].reshape(-1, len(whose.classes))

    return evaluate


def as_evaluated(method: str, whose: Federation, k: int) -> np.ndarray:
    """The log-probabilities of a client's test samples as its evaluation computes them."""
    result = trained(method)
    state = jax.device_get(result.state)
    outbox = result.trial.program.engine.algorithm_at(state.values).outbox(state.server)
    sent = state._replace(server=outbox, clients=(), cursor=())
    evaluate = evaluation(method, whose is result.trial.program.task.newcomers)
    return np.asarray(evaluate(jnp.int32(k), sent, state.clients, whose.train, whose.test))[: whose.test.size[k]]


@pytest.mark.parametrize(
    "method",
    [
        FEDEM,
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (MH, "perfedavg:R=2", "fedavg:R=2,fine_tune=1", "local:R=1")
        ),
    ],
)
def test_a_saved_model_says_what_the_evaluator_says(method: str, tmp_path: Path) -> None:
    result = trained(method)
    task = result.trial.program.task
    assert task.newcomers is not None
    for federation, model in ((task.federation, "personal"), (task.newcomers, "newcomer")):
        for k, client in enumerate(federation.ids):
            x, labels = test_samples(federation, k)
            loaded = fp.load(result.save(tmp_path / "model", client=client), model=build)
            assert loaded.client == client
            assert loaded.classes == ("?", "ill", "well")
            assert np.array_equal(loaded.log_probabilities(x), as_evaluated(method, federation, k))
            (row,) = [row for row in result.record.clients if row[:4] == (2, model, "own", client)]
            accuracy = 100 * np.sum(loaded.predict(x) == labels) / len(x)
            assert accuracy == row.values["accuracy"] == loaded.about["test_accuracy"]
            assert (row.samples, loaded.about["of"]) == (loaded.about["test_samples"], model)
            weights, modules = result.personal_model(client)
            assert np.array_equal(weights, loaded.weights)
            assert eqx.tree_equal(modules, loaded.models)
    assert len(loaded.weights) == (3 if "fedem" in method else 1)


def test_the_global_model_is_saved_where_there_is_one(tmp_path: Path) -> None:
    result = trained(MH)
    loaded = fp.load(result.save(tmp_path / "model"), model=build)
    assert loaded.client is None
    assert eqx.tree_equal(loaded.models[0], result.global_model())
    federation = result.trial.program.task.federation
    hits = [test_samples(federation, k) for k in range(3)]
    right = sum(np.sum(loaded.predict(x) == labels) for x, labels in hits)
    total = sum(len(labels) for _, labels in hits)
    assert (loaded.about["test_samples"], loaded.about["of"]) == (total, "global")
    assert 100 * right / total == pytest.approx(result.accuracy("global", "own"), abs=1e-9)
    assert loaded.about["test_accuracy"] == result.accuracy("global", "own")
    with pytest.raises(
        fp.FedpriorError, match="fedem M=3 R=1 has no global model; name the client whose model is meant"
    ):
        trained(FEDEM).save(tmp_path / "none")
    with pytest.raises(fp.FedpriorError, match=r"client 'nobody' does not exist; valid: 'St. C', "):
        result.save(tmp_path / "none", client="nobody")
    with pytest.raises(fp.FedpriorError, match=r"unknown round 'best'.*valid: best-on-validation, last"):
        result.save(tmp_path / "none", round="best")
    assert not (tmp_path / "none").exists()


ELSEWHERE = """
import sys, numpy as np, equinox as eqx, fedprior as fp
model = fp.load(sys.argv[1], model=lambda key: eqx.nn.MLP(3, 3, 8, 1, key=key))
np.savez(sys.argv[3], labels=model.predict(x := np.load(sys.argv[2])), log_p=model.log_probabilities(x))
assert "fedprior.study" not in sys.modules
"""


def test_another_process_says_the_same(tmp_path: Path) -> None:
    """It has neither the training data nor as many devices."""
    result = trained(FEDEM)
    x, labels = test_samples(result.trial.program.task.federation, 0)
    result.save(tmp_path / "model", client="St. C")
    np.save(tmp_path / "x.npy", x)
    paths = [str(tmp_path / name) for name in ("model", "x.npy", "out.npz")]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *paths], check=True)
    with np.load(tmp_path / "out.npz") as out:
        assert np.array_equal(out["log_p"], as_evaluated(FEDEM, result.trial.program.task.federation, 0))
        (row,) = [row for row in result.record.clients if row[:4] == (2, "personal", "own", "St. C")]
        assert 100 * np.sum(out["labels"] == labels) / len(labels) == row.values["accuracy"]


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> fp.Task:
    """A task of texts: a word means a mood."""
    monkeypatch.setattr(SOURCES, "_entries", dict(SOURCES._entries))
    words = ("good", "bad", "day")

    def source() -> Source:
        x = token_ids(["good day", "bad day"] * 6, {word: k for k, word in enumerate(words, start=2)})
        vectors = np.vstack([np.zeros((2, 3)), np.eye(3)])
        made = from_arrays(x, ["glad", "sad"] * 6, client_id=["a", "a", "b", "b"] * 3, vectors=vectors)
        return dataclasses.replace(made, preparation=dataclasses.replace(made.preparation, words=words))

    SOURCES.register("moods", source)
    model = {"name": "lstm", "hidden": 2, "layers": 1, "head_width": 3}
    return fp.task({"name": "moods", "data": {"source": "moods"}, "partition": {"kind": "natural"}, "model": model})


def test_a_model_of_texts_is_saved_with_its_words_and_vectors(texts: fp.Task, tmp_path: Path) -> None:
    trial = Trial(Program(texts, fp.Variant.of("local")), 0)
    result = fp.Result(trial, trial.init(), MemoryRun())  # training would change nothing here
    loaded = fp.load(result.save(tmp_path / "model", client="b"))
    assert loaded.about["test_accuracy"] is None  # no round was evaluated
    federation = texts.federation
    x = np.asarray(federation.train.x)
    said = loaded.predict_proba(["good day", "bad day"])
    for row, text in zip(said, ("good day", "bad day"), strict=True):
        same = np.flatnonzero((x == loaded.preparation([text])[0]).all(1))
        assert np.array_equal(loaded.predict_proba(x[same])[0], row)
    assert set(loaded.predict(["good day", "what a day"]).tolist()) <= {"glad", "sad"}
    assert federation.vectors is not None
    assert np.array_equal(loaded.models[0].vectors.array, federation.vectors)
    _, (module,) = result.personal_model("b")
    assert eqx.tree_equal(module, loaded.models[0])
