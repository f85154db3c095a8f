"""Theorem 2's quantities: closed forms against autodiff of the objective and against the engine."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedprior.core.vectors import Vector
from fedprior.engine.engine import Engine
from fedprior.methods import make
from fedprior.reproduce.theorems.bounds import Conditions
from fedprior.reproduce.theorems.convex import KINDS, D, RidgeQuadratic, logistic, quadratic
from fedprior.reproduce.theorems.personal import Strategy, deviation, farthest, limits, personal

LAM, ETA = 20.0, 0.04


def one(w: Array, h: Array, c: Array) -> Array:
    """F_i(w) = f_i(theta) + lam/2 ||theta - mu||^2 for lg: mu = w - eta grad f_i(w), theta the proximal point of mu."""
    mu = w - ETA * h * (w - c)
    theta = (h * c + LAM * mu) / (h + LAM)
    return jnp.sum(0.5 * h * (theta - c) ** 2 + 0.5 * LAM * (theta - mu) ** 2)


def test_lg_in_closed_form() -> None:
    s = Strategy(quadratic(LAM), "lg", ETA)
    h, c = s.setting.curvatures, s.setting.centres
    values, slopes = (jax.jit(jax.vmap(f, (None, 0, 0))) for f in (one, jax.grad(one)))
    at_best, at_limit = np.asarray(slopes(s.best, h, c)), np.asarray(slopes(s.limit, h, c))
    np.testing.assert_allclose(at_best.mean(0), 0, atol=1e-12)
    assert s.gap == pytest.approx(float(jnp.mean(values(s.limit, h, c) - values(s.best, h, c))), rel=1e-8)
    assert s.gap > 0  # the first-order gradient's limit is another point
    assert s.eta_gamma == pytest.approx(ETA * 9)
    assert s.conditions.mu == pytest.approx((h * LAM / (h + LAM) * (1 - ETA * h) ** 2).min())

    terms, slope_f, L_F = s.terms(), h * (s.limit - c), (1 + ETA * 9) ** 2 * s.setting.l_envelope
    assert terms["16 sigma²/λ²"] == pytest.approx(16 / LAM**2 * (at_best**2).sum(1).max())
    assert terms["2 (eta G)²"] == pytest.approx(2 * ETA**2 * (slope_f**2).sum(1).max())
    mu = s.limit - ETA * slope_f
    first_order = LAM * (mu - (h * c + LAM * mu) / (h + LAM))
    assert terms["8 eps_1²/λ²"] == pytest.approx(8 / LAM**2 * ((at_limit - first_order) ** 2).sum(1).max())
    assert terms["c_p D_F"] == pytest.approx((32 * L_F / LAM**2 + 8 / s.conditions.mu) * s.gap)


class From(RidgeQuadratic):
    """The quadratic with a start of its own."""

    start: tuple[float, ...] = eqx.field(static=True, default=())

    def init(self, key: Array) -> Vector:
        return Vector(jnp.asarray(self.start))


def by_engine(mean: str, alpha_m: float, w: np.ndarray, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Global and personal models of the method itself after some rounds from w."""
    setting = quadratic(LAM)
    etas = {"lg": {"eta_alpha": ETA}, "meg": {"eta": ETA}, "mh": {"eta_alpha": ETA, "eta": ETA}}[mean]
    method = make("pfedbred", mean=mean, R=1, K=2000, tol=1e-12, lam=LAM, alpha=1 / 29, alpha_m=alpha_m, **etas)
    engine = Engine(From(start=tuple(map(float, w))), method.algorithm(), setting.federation, batch_size=1)
    state = engine.init(0)
    for _ in range(rounds):
        state, _ = engine.step(state)
    return np.array(state.server.tree), np.array(state.clients.theta.tree)[:KINDS]


def test_the_method_comes_to_rest_at_its_limit() -> None:
    s = Strategy(quadratic(LAM), "lg", ETA)
    w, theta = by_engine("lg", 0.2, np.ones(D), 80)
    np.testing.assert_allclose(w, s.limit, atol=1e-8)
    held = personal("lg").models(s.limit, LAM, 1 / 29, ETA, 3)[-1]
    np.testing.assert_allclose(held, theta, atol=1e-7)
    assert farthest(held, s.best) < sum(s.terms().values())


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["meg", "mh"])
def test_so_it_does_with_memory(mean: str) -> None:
    """Up to alpha_m, by which the memory m_i = w - alpha_m grad F_i differs from w."""
    s = Strategy(quadratic(LAM), mean, ETA)
    w, theta = by_engine(mean, 1e-4, s.limit, 300)
    np.testing.assert_allclose(w, s.limit, atol=1e-3)
    held = personal(mean).models(s.limit, LAM, 1 / 29, ETA)[-1]
    np.testing.assert_allclose(held, theta, atol=2e-3)
    k = LAM / (LAM + s.setting.curvatures)
    np.testing.assert_allclose(held, s.setting.centres + k * s.b * (s.limit - s.setting.centres), atol=1e-9)


def test_what_gamma_phi_does_to_theorem_1() -> None:
    """It shrinks the step and gives a ball that does not vanish with eta, while the real error does, like eta^2."""
    rows = [row for row in limits([0.001, 0.002]) if row["mean"] == "lg"]
    assert [row["gamma_Phi"] for row in rows] == pytest.approx([9, 9])
    assert rows[1]["D_F(limit)"] / rows[0]["D_F(limit)"] == pytest.approx(4, rel=0.02)
    assert rows[0]["ball"] > 1e5
    plain = quadratic(100.0)
    assert rows[1]["step bound"] < rows[0]["step bound"] < Conditions(plain.mu_envelope, plain.l_envelope).bound


@pytest.mark.slow
def test_sigma_phi() -> None:
    """0 where Dmu is constant; elsewhere above 0 and about proportional to a small eta."""
    assert deviation(quadratic(), 0.05, pairs=20) == pytest.approx(0, abs=1e-9)
    small, large = (deviation(logistic(N=2), eta, pairs=200) for eta in (0.01, 0.02))
    assert small > 0
    assert large / small == pytest.approx(2, rel=0.1)
