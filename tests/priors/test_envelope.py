"""Proximal points, envelopes and their gradients against closed forms and 40-digit references."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from jax import Array
from test_families import GENERATORS, D, family, flat, precision, vector
from toys import Quadratic, quadratics, view

from fedprior.methods import make
from fedprior.methods.pfedbred import PFedBreD
from fedprior.priors.means import RMD
from fedprior.vectors import Vector

H, C, LAM = np.array([0.5, 2.0, 1.0]), np.array([1.0, -2.0, 0.3]), 1.7
MU = np.array([0.4, 0.9, -1.2])
GAUSSIANS = ("gaussian", "gaussian-diagonal", "gaussian-lowrank", "gaussian-dense")


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """Everything here is about many digits."""


def f(u: Vector) -> Array:
    return 0.5 * jnp.sum(H * (u.tree - C) ** 2)


def prox(name: str, tol: float = 1e-13, **options: Any) -> Vector:
    start = vector(np.zeros(D))
    return family(name).prox(
        jax.grad(f), vector(MU), start, LAM, options.pop("alpha", 0.1), options.pop("K", 20_000), tol=tol, **options
    )


@pytest.mark.parametrize("name", GAUSSIANS)
def test_gaussian_prox_envelope_and_gradient(name: str) -> None:
    """theta = (H + lam P)^-1 (H c + lam P mu); env and its gradient lam P (mu - theta)."""
    p = precision(name)
    theta = np.linalg.solve(np.diag(H) + LAM * p, H * C + LAM * p @ MU)
    ours = prox(name)
    np.testing.assert_allclose(flat(ours), theta, rtol=1e-10)
    value = 0.5 * H @ (theta - C) ** 2 + LAM / 2 * (theta - MU) @ p @ (theta - MU)
    prior = family(name)
    assert float(prior.envelope(f, vector(MU), ours, LAM)) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(flat(prior.envelope_grad(vector(MU), ours, LAM)), LAM * p @ (MU - theta), rtol=1e-9)


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "exponential"])
def test_bounded_families_against_forty_digits(name: str) -> None:
    """One parameter at a time: f(u) + lam D(x(u), x(v)) minimised by mpmath, and the envelope differentiated there."""
    link = {"bernoulli": lambda u: 1 / (1 + mp.exp(-u))}.get(name, mp.exp)
    g = GENERATORS[name]

    def divergence(u: Any, v: Any) -> Any:
        x, y = link(u), link(v)
        return g(x) - g(y) - mp.diff(g, y) * (x - y)

    ours, prior = prox(name), family(name)
    gradient = flat(prior.envelope_grad(vector(MU), ours, LAM))
    values = 0.0
    with mp.workdps(40):
        for k in range(D):
            h, c = mp.mpf(H[k]), mp.mpf(C[k])

            def objective(u: Any, v: Any, h: Any = h, c: Any = c) -> Any:
                return h * (u - c) ** 2 / 2 + LAM * divergence(u, v)

            def best(v: Any, k: int = k, objective: Any = objective) -> Any:
                return mp.findroot(
                    lambda u: mp.diff(lambda t: objective(t, v), u), mp.mpf(float(flat(ours)[k])), tol=1e-25
                )

            v = mp.mpf(MU[k])
            theta = best(v)
            assert float(theta) == pytest.approx(float(flat(ours)[k]), rel=1e-10, abs=1e-10)
            slope = mp.diff(lambda v, best=best, objective=objective: objective(best(v), v), v, h=mp.mpf(10) ** -8)
            assert float(slope) == pytest.approx(gradient[k], rel=1e-8, abs=1e-10)
            values += float(objective(theta, v))
    assert float(prior.envelope(f, vector(MU), ours, LAM)) == pytest.approx(values, rel=1e-9)


@pytest.mark.parametrize("name", [*GAUSSIANS, "bernoulli", "poisson", "exponential", "user"])
def test_envelope_grad_is_the_derivative_of_the_envelope(name: str) -> None:
    prior = family(name)

    def envelope(v: Vector) -> Array:
        theta = prior.prox(jax.grad(f), v, vector(np.zeros(D)), LAM, 0.05, 20_000, tol=1e-13)
        return prior.envelope(f, v, theta, LAM)

    v = vector(MU * 0.5)
    theta = prior.prox(jax.grad(f), v, vector(np.zeros(D)), LAM, 0.05, 20_000, tol=1e-13)
    ours = flat(prior.envelope_grad(v, theta, LAM))
    for k in range(D):
        e = 1e-5 * np.eye(D)[k]
        numeric = (float(envelope(v + vector(e))) - float(envelope(v - vector(e)))) / 2e-5
        assert ours[k] == pytest.approx(numeric, rel=1e-7, abs=1e-8)


def test_solvers_agree_and_counts_are_kept() -> None:
    exact = flat(prox("gaussian"))
    np.testing.assert_allclose(flat(prox("gaussian", tol=0.0, K=3000)), exact, rtol=1e-10)
    np.testing.assert_allclose(flat(prox("gaussian", tol=0.0, K=3000, solver="adam", alpha=0.02)), exact, atol=1e-3)
    one = flat(prox("gaussian", tol=0.0, K=1, alpha=0.1))
    np.testing.assert_allclose(one, -0.1 * (H * (0 - C) + LAM * (0 - MU)), rtol=1e-12)
    np.testing.assert_allclose(
        flat(prox("gaussian", tol=1e-13, K=1, alpha=0.1)), one, rtol=1e-12
    )  # K bounds the tolerance


def test_a_large_lambda_ties_theta_to_mu_in_every_family() -> None:
    for name in (*GAUSSIANS, "bernoulli", "poisson", "exponential"):
        prior = family(name)
        theta = prior.prox(jax.grad(f), vector(MU), vector(MU), 1e6, 1e-7, 2000)
        np.testing.assert_allclose(flat(theta), MU, atol=3e-5)


# -- the envelope's gradient in w, through the mean ----------------------------------------------------------------------

DATA = quadratics(C[None], H[None], [4])


def one_step(**settings: Any) -> np.ndarray:
    """(w_old - w_new) / alpha_m after one iteration from w = MU, theta = 0, m = 0.3: the gradient that was taken."""
    method = make("pfedbred", R=1, K=20_000, tol=1e-13, lam=LAM, alpha=0.1, alpha_m=0.5, **settings)
    assert isinstance(method, PFedBreD)
    client = method.client(vector(np.full(D, 0.3)), jax.random.key(0)) | {"theta": vector(np.zeros(D))}
    local = jax.jit(lambda c, d: method.local(Quadratic(D), c, d, view(DATA, batch=4), jax.random.key(0)))
    _, w, _ = local(client, vector(MU))
    return (MU - flat(w)) / 0.5


def closed_form(gradient: bool, memory: bool, exact: bool, eta: float, eta_alpha: float) -> np.ndarray:
    """mu = w - eta_alpha H (w - c) - eta (m - theta); the slope is (I - eta_alpha H) lam (mu - prox)."""
    mu = MU - gradient * eta_alpha * H * (MU - C) - memory * eta * 0.3
    theta = (H * C + LAM * mu) / (H + LAM)
    return LAM * (mu - theta) * ((1 - eta_alpha * H) if exact and gradient else 1)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("mean", "gradient", "memory"), [("identity", 0, 0), ("lg", 1, 0), ("meg", 0, 1), ("mh", 1, 1)]
)
def test_first_order_and_exact_gradients(mean: str, gradient: int, memory: int, exact: bool) -> None:
    ours = one_step(mean=mean, gradient="exact" if exact else "first_order", eta=0.2, eta_alpha=0.3)
    np.testing.assert_allclose(ours, closed_form(bool(gradient), bool(memory), exact, 0.2, 0.3), rtol=1e-9)


def test_for_meg_exact_is_first_order() -> None:
    """The memory is a constant to the gradient."""
    kinds = [one_step(mean="meg", gradient=g, eta=0.2) for g in ("first_order", "exact")]
    np.testing.assert_array_equal(*kinds)


def test_the_variants_two_step_sizes() -> None:
    """mu = w - eta_alpha grad f(w - eta_inner grad f(w)) - eta (m - theta); on a quadratic grad f = H (. - c)."""
    inner = MU - 0.25 * H * (MU - C)
    mu = MU - 0.3 * H * (inner - C) - 0.2 * 0.3
    theta = (H * C + LAM * mu) / (H + LAM)
    ours = one_step(mean="mh-variant", eta=0.2, eta_alpha=0.3, eta_inner=0.25)
    np.testing.assert_allclose(ours, LAM * (mu - theta), rtol=1e-9)


def test_a_potential_of_the_users_own() -> None:
    """phi = ||w||^2 / 2: mu = (1 - eta_alpha) w."""
    mean = RMD(phi=lambda problem, w, batch: 0.5 * (w @ w))
    mu = 0.7 * MU
    theta = (H * C + LAM * mu) / (H + LAM)
    for gradient, factor in (("first_order", 1.0), ("exact", 0.7)):
        ours = one_step(mean=mean, eta_alpha=0.3, gradient=gradient)
        np.testing.assert_allclose(ours, factor * LAM * (mu - theta), rtol=1e-9)


def test_start_of_w_and_theta() -> None:
    """w_init = own goes on from m = 0.3; theta_init = received starts the proximal loop at the received w."""
    step = {"R": 1, "K": 1, "lam": LAM, "alpha": 0.1, "alpha_m": 0.5, "mean": "identity"}

    def run(**settings: Any) -> tuple[np.ndarray, np.ndarray]:
        method = make("pfedbred", **step, **settings)
        client = method.client(vector(np.full(D, 0.3)), jax.random.key(0)) | {"theta": vector(np.zeros(D))}
        client, w, _ = jax.jit(lambda c, d: method.local(Quadratic(D), c, d, view(DATA, batch=4), jax.random.key(0)))(
            client, vector(MU)
        )
        return flat(w), flat(client["theta"])

    def by_hand(w: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta = theta - 0.1 * (H * (theta - C) + LAM * (theta - w))
        return w - 0.5 * LAM * (w - theta), theta

    for settings, w, theta in (
        ({}, MU, np.zeros(D)),
        ({"w_init": "own"}, np.full(D, 0.3), np.zeros(D)),
        ({"theta_init": "received"}, MU, MU),
    ):
        for ours, theirs in zip(run(**settings), by_hand(w, theta), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
