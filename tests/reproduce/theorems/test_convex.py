"""The problems' answers, checked by means other than those that gave them: autodiff of the envelope, and scipy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import optimize

from fedprior.core.batch import Batch
from fedprior.core.vectors import Vector
from fedprior.reproduce.theorems.convex import KINDS, D, Setting, logistic, quadratic


def loss(setting: Setting, i: Array, w: Array) -> Array:
    """f_i(w) on all samples of client i, from the federation that the engine is given; all have equally many."""
    x, y, start, size = setting.federation.train
    mine = jnp.asarray(start)[i] + jnp.arange(int(size[0]))
    return setting.problem.loss(Vector(w), Batch(jnp.asarray(x)[mine], jnp.asarray(y)[mine], jnp.ones(len(mine))))


def objective(setting: Setting, i: Array, theta: Array, w: Array) -> Array:
    return loss(setting, i, theta) + 0.5 * setting.lam * jnp.sum((theta - w) ** 2)


def envelope_slopes(setting: Setting, w: np.ndarray) -> np.ndarray:
    """lam (w - prox_i(w)) of all clients [N, D], the proximal points by scipy."""
    value = jax.jit(jax.value_and_grad(lambda x, i: objective(setting, i, x, jnp.asarray(w))))
    points = [
        optimize.minimize(lambda x, i: tuple(np.asarray(a, float) for a in value(x, i)), w, (i,), jac=True, tol=1e-12).x
        for i in range(setting.N)
    ]
    return np.asarray(setting.lam * (w - np.array(points)))


def envelope(setting: Setting, i: Array, w: Array) -> Array:
    """F_i(w) by Newton's method; for autodiff."""
    theta = w
    for _ in range(1 if setting.name == "quadratic" else 4):
        hessian, slope = jax.hessian(objective, 2)(setting, i, theta, w), jax.grad(objective, 2)(setting, i, theta, w)
        theta = theta - jnp.linalg.solve(hessian, slope)
    return objective(setting, i, theta, w)


def test_the_envelopes_moduli_are_those_of_its_hessian() -> None:
    """And not those of the proximal objective, lam + mu_f and lam + L_f, which the paper's assumption takes."""
    setting = quadratic(lam=3.0)
    hessian = jax.hessian(lambda w, i: envelope(setting, i, w))
    values = np.linalg.eigvalsh(jax.jit(jax.vmap(hessian, (None, 0)))(jnp.ones(D), jnp.arange(KINDS)))
    assert values.min() == pytest.approx(setting.mu_envelope, rel=1e-6)
    assert values.max() == pytest.approx(setting.l_envelope, rel=1e-6)
    assert setting.mu_envelope == pytest.approx(12 / 7)  # 3 * 4 / (3 + 4)


def test_the_quadratics_optimum_and_gap() -> None:
    """The mean of lam (w - prox_i(w)) vanishes at w*, and F around it is the quadratic form that gap says."""
    setting = quadratic()
    slopes = envelope_slopes(setting, setting.best)
    np.testing.assert_allclose(slopes.mean(0), 0, atol=1e-6)
    assert setting.sigma == pytest.approx(np.linalg.norm(slopes, axis=1).max(), rel=1e-6)
    np.testing.assert_allclose(setting.slope(jnp.int32(3), jnp.asarray(setting.best)), slopes[3], atol=1e-6)

    total = jax.jit(lambda w: jnp.mean(jax.vmap(lambda i: envelope(setting, i, w))(jnp.arange(KINDS))))
    away = np.array([0.3, -0.2, 0.1, 0.5])
    rise = float(total(setting.best + away) - total(setting.best))
    assert float(setting.gap(setting.best + away)) == pytest.approx(rise, rel=1e-9)
    h = setting.curvatures
    assert rise == pytest.approx(float(0.5 * (h / (h + 1)).mean(0) @ away**2), rel=1e-9)  # lam = 1


def test_n_changes_nothing_but_the_number_of_clients() -> None:
    small, large = quadratic(), quadratic(N=32)
    assert large.N == 32
    np.testing.assert_allclose(large.best, small.best, rtol=1e-12)
    assert large.sigma == pytest.approx(small.sigma)
    with pytest.raises(ValueError, match="N = 12 is not a multiple of the 8 kinds"):
        quadratic(N=12)


@pytest.mark.slow
def test_the_regressions_optimum_is_what_scipy_finds() -> None:
    setting = logistic(N=4)
    mean = lambda w: jnp.mean(jax.vmap(lambda i: envelope(setting, i, w))(jnp.arange(4)))  # noqa: E731
    total = jax.jit(jax.value_and_grad(mean))
    found = optimize.minimize(lambda w: tuple(np.asarray(a, float) for a in total(w)), np.zeros(D), jac=True, tol=1e-10)
    np.testing.assert_allclose(setting.best, found.x, atol=1e-6)
    away = np.array([0.3, -0.2, 0.1, 0.5])
    rise = float(total(found.x + away)[0]) - found.fun
    assert float(setting.gap(setting.best + away)) == pytest.approx(rise, rel=1e-6)
    by_scipy = envelope_slopes(setting, away)
    for i in range(4):
        np.testing.assert_allclose(setting.slope(jnp.int32(i), jnp.asarray(away)), by_scipy[i], atol=1e-5)
        values = np.linalg.eigvalsh(jax.hessian(loss, 2)(setting, jnp.int32(i), jnp.asarray(away)))
        assert setting.mu_f < values[0] < values[-1] < setting.l_f
