"""The evaluation grid against a plain recomputation, and that it never writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from toys import SIZES, Quadratic, blobs, engine_of, federation, rounds

from fedprior.core.batch import Data
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.random import Purpose, key_for
from fedprior.core.vectors import Vector, row
from fedprior.engine.evaluate import Evaluator
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.pfedme import PFedMe
from fedprior.records.checkpoint import to_bytes
from fedprior.records.schema import averages

N = len(SIZES)
PROBLEM, DATA = blobs((3, 9, 16, 21, 300))  # the last needs several chunks


def by_hand(w: Vector, x: np.ndarray, y: np.ndarray) -> tuple[int, float]:
    logits = x @ np.asarray(w.tree.weight).T + np.asarray(w.tree.bias)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return int((logits.argmax(1) == y).sum()), float(-log_p[np.arange(len(y)), y].sum())


def test_own_and_pooled_equal_a_plain_recomputation() -> None:
    engine = engine_of(PROBLEM, make("pfedme", R=5, K=2, alpha=0.1, alpha_m=0.1), DATA, batch_size=8, aggregated=2)
    state = rounds(engine, 3)
    before = to_bytes(engine.placement.to_host(state))
    evaluator = Evaluator(engine)
    own, pooled = evaluator.own(state), evaluator.pooled(state)
    assert to_bytes(engine.placement.to_host(state)) == before
    x, y, start, size = map(np.asarray, DATA.test)
    for i in range(N):
        mine = slice(start[i], start[i] + size[i])
        theta = row(jax.device_get(state.clients), i)
        for score, w, part in (
            (own["personal"], theta, mine),
            (own["global"], jax.device_get(state.server), mine),
            (pooled["personal"], theta, slice(None)),
        ):
            correct, loss = by_hand(w, x[part], y[part])
            assert score.sums["accuracy"][i] == correct
            assert score.sums["nll"][i] == pytest.approx(loss, rel=1e-4)
            assert score.count[i] == len(y[part])
    assert (own["personal"].values("accuracy") == 100 * own["personal"].sums["accuracy"] / size).all()


class Split(Method):
    """A client's state and its personal model sum up its held samples, in training and in evaluation."""

    def _held(self, data: Data) -> Vector:
        held = data.split(0.5)[1]
        return Vector(held.fold(lambda total, batch: total + batch.mask @ batch.x[:, :1], jnp.zeros(1)))

    def client(self, w0: Vector, key: Array) -> Vector:
        return w0

    def local(self, problem: Problem, client: Any, down: Any, data: Data, key: Array) -> tuple[Vector, Vector, Info]:
        return self._held(data), down, {}

    def personal_model(self, problem: Problem, client: Any, down: Any, data: Data, key: Array) -> Mixture:
        return single(self._held(data))


def test_samples_are_split_for_the_personal_model_as_they_are_in_training() -> None:
    """So that what is held out to judge a model was not trained on."""
    x = np.random.default_rng(0).normal(size=(sum(SIZES), 2)).astype(np.float32)
    engine = engine_of(Quadratic(1), Split(), federation(x, np.zeros(len(x)), SIZES), participation="all")
    state = rounds(engine, 2)
    for i in range(N):
        _, models = Evaluator(engine).personal_model(state, i)
        trained = row(jax.device_get(state.clients), i)
        np.testing.assert_allclose(models.tree[0], trained.tree, rtol=1e-5)


def test_methods_without_a_global_model_have_no_global_row() -> None:
    engine = engine_of(PROBLEM, make("local", R=1), DATA, batch_size=8)
    assert set(Evaluator(engine).own(engine.init(0))) == {"personal"}


class Mixed(PFedMe):
    """Predicts with a mixture of theta and the received w."""

    def personal_model(self, problem: Any, client: Any, down: Any, data: Any, key: Any) -> Mixture:
        return jnp.array([0.3, 0.7]), jax.tree.map(lambda a, b: jnp.stack([a, b]), client, down)


def test_a_mixture_predicts_with_its_mean_probability() -> None:
    engine = engine_of(PROBLEM, Mixed(R=3, K=2, alpha=0.1), DATA, batch_size=8)
    state = rounds(engine, 2)
    score = Evaluator(engine).own(state)["personal"]
    x, y, start, size = map(np.asarray, DATA.test)
    theta, w = jax.device_get(state.clients), jax.device_get(state.server)
    for i in range(N):
        mine = slice(start[i], start[i] + size[i])

        def p(v: Vector, x: np.ndarray = x[mine]) -> np.ndarray:
            e = np.exp(x @ np.asarray(v.tree.weight).T + np.asarray(v.tree.bias))
            return e / e.sum(1, keepdims=True)

        mix = 0.3 * p(row(theta, i)) + 0.7 * p(w)
        assert score.sums["accuracy"][i] == (mix.argmax(1) == y[mine]).sum()
        assert score.sums["nll"][i] == pytest.approx(-np.log(mix[np.arange(size[i]), y[mine]]).sum(), rel=1e-4)


def test_averages() -> None:
    accuracy, count = np.arange(20.0), np.r_[np.ones(19), 100]
    found = averages(accuracy, count)
    assert found["mean"] == 9.5
    assert found["worst_decile"] == 0.5  # clients with 0 and 1
    assert found["weighted"] == pytest.approx((accuracy[:19].sum() + 1900) / 119)
    assert averages(accuracy, count, worst_is_low=False)["worst_decile"] == 18.5
    assert averages(np.array([50.0, 0.0]), np.array([4, 0]))["mean"] == 50  # a client without samples does not count


def test_validation_needs_validation_samples() -> None:
    engine = engine_of(PROBLEM, make("local"), DATA, batch_size=8)
    with pytest.raises(FedpriorError, match="no validation samples"):
        Evaluator(engine, "validation")


class Summing(PFedMe):
    """A newcomer's model is what it received, times the sum of its own samples' first feature and a number of its own."""

    def join(self, problem: Any, down: Any, data: Any, key: Any) -> Any:
        total = data.fold(lambda total, batch: total + jnp.sum(batch.mask * batch.x[:, 0]), jnp.zeros(()))
        return (total + jax.random.uniform(key)) * down


def test_a_newcomer_trains_and_is_tested_on_its_own_samples() -> None:
    newcomers = replace(blobs((5, 8, 11), seed=1)[1], clients=np.array([7, 3, 9]))
    engine = engine_of(PROBLEM, Summing(R=2, K=2, alpha=0.1), DATA, batch_size=8)
    state = rounds(engine, 2)
    scores = Evaluator(engine, newcomers=newcomers).newcomers(state)
    x, y, start, size = map(np.asarray, newcomers.test)
    host = jax.device_get(state)
    for i, number in enumerate((7, 3, 9)):
        mine = slice(start[i], start[i] + size[i])
        key = key_for(jax.random.wrap_key_data(host.seed), Purpose.JOIN, 2, number)  # of the client, not of its place
        own = (float(x[mine, 0].sum()) + float(jax.random.uniform(jax.random.split(key, 4)[2]))) * host.server
        for model, w in (("newcomer", own), ("newcomer-global", host.server)):
            correct, loss = by_hand(w, x[mine], y[mine])
            assert scores[model].sums["accuracy"][i] == correct
            assert scores[model].sums["nll"][i] == pytest.approx(loss, rel=1e-4)
            assert scores[model].count[i] == size[i]
