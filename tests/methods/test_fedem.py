"""FedEM: a round by hand and against plain numpy; one learner is FedAvg; the mixture is what is evaluated."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from toys import Quadratic, blobs, engine_of, federation, local, quadratics, rounds, view

from fedprior.core.vectors import Vector
from fedprior.data.federation import Federation
from fedprior.engine.engine import Engine
from fedprior.engine.evaluate import Evaluator
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedem import JOIN_STEPS
from fedprior.models.classifier import Classifier

KEY = jax.random.key(0)


@pytest.mark.usefixtures("float64")
def test_client_by_hand() -> None:
    """f = w^2. Losses ln 2 and ln 6 have likelihoods 1/2 and 1/6, so with equal shares q = pi = (3/4, 1/4).

    w_m <- (1 - .1 * q_m * 2) w_m, twice, with the q of the received learners.
    """
    data = quadratics(np.array([[0.0]]), np.array([[2.0]]), [3])
    down = Vector(jnp.sqrt(jnp.log(jnp.array([[2.0], [6.0]]))))
    pi, up, _ = local(make("fedem", M=2, R=2, alpha=0.1), Quadratic(1), jnp.full(2, 0.5), down, lambda: view(data))
    np.testing.assert_allclose(pi, [0.75, 0.25], rtol=1e-12)
    np.testing.assert_allclose(up.tree, down.tree * np.array([[0.85], [0.95]]) ** 2, rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_sample_that_is_none_of_a_learners_business_still_counts() -> None:
    """Centres 0 and 100, learners 1 and 100: q is 1 and exactly 0. Mean slope of the first: (2 * 1 + 0) / 2 = 1."""
    data = federation(np.array([[0.0, 2.0], [100.0, 2.0]]), np.zeros(2), [2])
    down = Vector(jnp.array([[1.0], [100.0]]))
    pi, up, _ = local(make("fedem", M=2, R=1, alpha=0.1), Quadratic(1), jnp.full(2, 0.5), down, lambda: view(data))
    assert pi.tolist() == [0.5, 0.5]
    np.testing.assert_allclose(up.tree[:, 0], [0.9, 100.0], rtol=1e-12)


def test_merge_by_hand() -> None:
    ups = Vector(jnp.array([[[1.0], [10.0]], [[5.0], [2.0]]]))  # [S, M, D]
    server = make("fedem", M=2).merge((), ups, jnp.array([0.75, 0.25]), jnp.array([0, 4]), KEY)
    assert server.tree.tolist() == [[2.0], [8.0]]


def likelihoods(data: Federation, i: int, learners: Vector) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """x [n, d], y [n], probabilities [M, n, C] and losses [M, n] of linear learners, in numpy."""
    own = slice(int(data.train.start[i]), int(data.train.start[i] + data.train.size[i]))
    x, y = np.array(data.train.x[own], float), np.array(data.train.y[own])
    W, b = np.array(learners.tree.weight), np.array(learners.tree.bias)
    log_p = log_softmax(np.einsum("mcd,nd->mnc", W, x) + b[:, None], axis=2)
    return x, y, np.exp(log_p), -log_p[:, np.arange(len(y)), y]


@pytest.mark.usefixtures("float64")
def test_a_round_in_numpy() -> None:
    """300 samples: E in three chunks, and one step on all of them."""
    problem, data = blobs((3, 300))
    method = make("fedem", M=3, R=1, alpha=0.1)
    learners = jax.device_get(jax.jit(lambda: method.server(problem, problem.init(KEY), 2, KEY))())
    assert all(np.ptp(x, axis=0).min() > 0 for x in jax.tree.leaves(learners))
    before = np.array([0.2, 0.5, 0.3])
    pi, up, _ = local(method, problem, jnp.array(before), learners, lambda: view(data, 1, batch=300))
    x, y, p, losses = likelihoods(data, 1, learners)
    q = before[:, None] * np.exp(-losses)
    q /= q.sum(0)
    np.testing.assert_allclose(pi, q.mean(1), rtol=1e-10)
    assert float(pi.sum()) == pytest.approx(1, abs=1e-12)
    assert float(pi.min()) > 0
    slope = q[:, :, None] * (p - np.eye(3)[y])  # [M, n, C]
    np.testing.assert_allclose(
        up.tree.weight, learners.tree.weight - 0.1 * np.einsum("mnc,nd->mcd", slope, x) / 300, rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(up.tree.bias, learners.tree.bias - 0.1 * slope.mean(1), rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_one_learner_is_fedavg() -> None:
    problem, data = blobs()
    data = replace(data, train=data.train._replace(x=data.train.x.astype(float)))
    a, b = (
        rounds(engine_of(problem, make(name, R=4, alpha=0.1, **more), data, batch_size=8, aggregated=3), 3)
        for name, more in (("fedem", {"M": 1}), ("fedavg", {}))
    )
    for x, y in zip(jax.tree.leaves(a.server), jax.tree.leaves(b.server), strict=True):
        np.testing.assert_allclose(np.array(x)[0], np.array(y), rtol=1e-12)
    assert np.array(a.clients).tolist() == [[1.0]] * len(a.clients)


@functools.cache
def trained() -> tuple[Engine, Any, Federation]:
    problem, data = blobs()
    engine = engine_of(problem, make("fedem", M=2, R=4, alpha=0.3), data, batch_size=8)
    return engine, rounds(engine, 5), data


def test_the_mixture_is_what_is_evaluated() -> None:
    engine, state, data = trained()
    pi = np.array(state.clients)[: data.n_clients]
    np.testing.assert_allclose(pi.sum(1), 1, rtol=1e-5)
    assert pi.min() >= 0
    assert np.ptp(pi[:, 0]) > 0.01
    score = Evaluator(engine).own(state)["personal"]
    for i in range(data.n_clients):  # the toys' test samples are their training samples
        _, y, p, _ = likelihoods(data, i, jax.device_get(state.server))
        mixed = np.einsum("m,mnc->nc", pi[i], p)
        assert score.sums["accuracy"][i] == np.sum(mixed.argmax(1) == y)
        assert score.sums["nll"][i] == pytest.approx(-np.log(mixed[np.arange(len(y)), y]).sum(), rel=1e-5)


def test_a_newcomer_fits_only_its_mixture() -> None:
    engine, state, data = trained()
    method, learners = engine.algorithm, jax.device_get(state.server)
    down = method.send(learners, None, KEY)
    pi = jax.jit(lambda d: method.join(engine.problem, d, view(data, 2), KEY))(down)
    _, _, _, losses = likelihoods(data, 2, learners)
    expected = np.full(2, 0.5)
    for _ in range(JOIN_STEPS):
        q = expected[:, None] * np.exp(-losses)
        expected = (q / q.sum(0)).mean(1)
    np.testing.assert_allclose(pi, expected, rtol=1e-4)
    fit = [-logsumexp(np.log(p)[:, None] - losses, axis=0).mean() for p in (np.full(2, 0.5), expected)]
    assert fit[1] < fit[0] - 1e-3
    weights, models = method.personal_model(engine.problem, pi, down, view(data, 2), KEY)
    assert weights is pi
    assert all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (models, learners)), strict=True))
    message = method.send(make("fedem", M=2).server(engine.problem, engine.problem.init(KEY), 7, KEY), None, KEY)
    assert all(7 not in x.shape for x in jax.tree.leaves(message))


def test_nonsense_is_refused() -> None:
    with pytest.raises(FedpriorError, match="FedEM: M = 0 is not valid; it must be a whole number of at least 1"):
        make("fedem", M=0)
    problem, data = blobs()
    fixed = Classifier(problem.model(problem.init(KEY)), 3)
    with pytest.raises(FedpriorError, match="M = 3 learners need different starts, and this model always starts from"):
        engine_of(fixed, make("fedem", M=3), data)
    engine_of(fixed, make("fedem", M=1), data)


def test_there_are_m_models_and_no_global_one() -> None:
    problem, _ = blobs()
    for M in (1, 2):
        method = make("fedem", M=M)
        assert method.global_model(method.server(problem, problem.init(KEY), 4, KEY)) is None
