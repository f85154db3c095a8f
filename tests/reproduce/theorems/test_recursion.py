"""The compiled recursion: it is the engine's method, and its mean over seeds is the expectation."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.engine.engine import Engine
from fedprior.methods import make
from fedprior.reproduce.theorems.bounds import sampling
from fedprior.reproduce.theorems.convex import D, Quadratic, Setting, logistic, quadratic
from fedprior.reproduce.theorems.recursion import runner
from fedprior.wrappers.relaxation import relax


def by_engine(setting: Setting, step: float, rounds: int, S: int, R: int, beta: float, seed: int) -> np.ndarray:
    """w^(0..T) of pFedBreD with the identity mean and proximal points solved to 1e-12."""
    method = make(
        "pfedbred", mean="identity", R=R, K=500, tol=1e-12, lam=setting.lam, alpha_m=step / (beta * R),
        alpha=1.0 / (setting.lam + setting.l_f),
    )  # fmt: skip
    algorithm = relax(method.algorithm(), beta)
    engine = Engine(setting.problem, algorithm, setting.federation, batch_size=setting.batch, aggregated=S)
    state = engine.init(seed)
    path = [np.array(state.server.tree)]
    for _ in range(rounds):
        state, _ = engine.step(state)
        path.append(np.array(state.server.tree))
    return np.array(path)


def weighted(path: np.ndarray, step: float, mu: float) -> np.ndarray:
    """The theorem's average, as it is written."""
    xi = (1 - step * mu / 2) ** -(np.arange(len(path) - 1) + 1.0)
    return np.asarray(xi @ path[:-1] / xi.sum())


def agrees(setting: Setting, S: int, R: int, beta: float) -> None:
    step, start = 0.3, np.ones(D)
    ends = runner(setting, S, R, seeds=2, first=5)(step, 6, start, beta)
    path = by_engine(setting, step, 6, S, R, beta, seed=6)
    np.testing.assert_allclose(ends.last[1], path[-1], rtol=1e-9)
    average = weighted(path, step, setting.mu_envelope)
    np.testing.assert_allclose(ends.average[1], average, rtol=1e-9)
    assert ends.errors[1] == pytest.approx(float(setting.gap(jnp.asarray(average))), rel=1e-6)
    assert not np.allclose(ends.last[0], ends.last[1])  # another seed draws other clients


def test_it_is_the_engines_method() -> None:
    agrees(quadratic(), 2, 3, 1.7)


@pytest.mark.slow
def test_it_is_the_engines_method_on_a_regression() -> None:
    agrees(logistic(N=6), 4, 2, 1.0)


def test_with_one_local_step_beta_drops_out() -> None:
    run = runner(quadratic(), 2, 1, seeds=2)
    np.testing.assert_allclose(run(0.02, 50, beta=1.0).average, run(0.02, 50, beta=300.0).average, atol=1e-12)


def expected_error(setting: Quadratic, step: float, rounds: int, S: int) -> float:
    """E D_F(w_bar, w*) with R = 1 from w*, from the exact recursion of the second moments of x = w - w* and its sum."""
    h = setting.curvatures * setting.lam / (setting.curvatures + setting.lam)
    g = h * (setting.best - setting.centres)  # gradients at w*; their mean is 0
    rho, q = sampling(setting.N, S), 1 - step * setting.mu_envelope / 2
    mean_h, var_h, var_g, cov = h.mean(0), rho * h.var(0), rho * (g**2).mean(0), rho * ((h - h.mean(0)) * g).mean(0)
    x = xx = a = ax = aa = np.zeros(D)  # E x, E x^2, E A, E A x, E A^2 with A <- q A + x
    keep = 1 - step * mean_h
    for _ in range(rounds):
        aa, new_ax, a = q**2 * aa + 2 * q * ax + xx, q * ax + xx, q * a + x  # A before x moves
        ax = keep * new_ax  # the drawn clients do not depend on A and x, and the mean of g is 0
        xx = (keep**2 + step**2 * var_h) * xx + 2 * step**2 * cov * x + step**2 * var_g
        x = keep * x
    weight = (1 - q**rounds) / (1 - q)
    return float(0.5 * mean_h @ aa / weight**2)


def test_the_mean_over_seeds_is_the_expectation() -> None:
    setting, step, rounds, S = quadratic(N=16), 0.02, 125, 4
    errors = runner(setting, S, seeds=1000)(step, rounds).errors
    half = 4 * errors.std() / np.sqrt(len(errors))
    expected = expected_error(setting, step, rounds, S)
    assert half < 0.15 * expected
    assert errors.mean() == pytest.approx(expected, abs=half)
