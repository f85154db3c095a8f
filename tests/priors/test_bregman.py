"""What follows from any generator: conjugacy, divergence, identities, proximal points and envelopes, for every family."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.priors import PRIORS, find_prior
from fedprior.priors.bregman import Prior, check_prior

from .support import FAMILIES, LAM, MU, C, D, H, close, f, flat, solve, vector

pytestmark = pytest.mark.xdist_group("priors")  # compiled functions are shared


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """Everything here is about many digits; Hypothesis needs the fixture outside the examples."""


class Facts(NamedTuple):
    """Everything about natural parameters s, t, their means mu, x, and a mean y between these, that a test asks for."""

    mirror_mu: Any  # grad g*(mu), a Vector; all others are numbers
    value_mu: Any  # g*(mu)
    value_x: Any
    value_y: Any
    mu_s: Any  # <mu, s>
    x_s: Any
    x_t: Any
    d_x_mu: Any  # D(x, mu)
    d_mu_mu: Any
    d_x_y: Any
    d_y_mu: Any
    three_points: Any  # <grad g*(y) - grad g*(mu), x - y>
    log_density: Any  # of x at the mean mu, with lam = 3


class Family(NamedTuple):
    inverse_mirror: Callable[[Vector], Vector]
    conjugate: Callable[[Vector], Array]
    facts: Callable[[Vector, Vector, Vector, Vector], Facts]


@cache
def compiled(name: str) -> Family:
    """The functions of a family; those that a user's prior solves for by Newton's method are compiled once each."""
    prior = FAMILIES[name]

    def facts(s: Vector, t: Vector, mu: Vector, x: Vector) -> Facts:
        y = prior.to_mean(prior.to_coordinates(mu) * 0.5 + prior.to_coordinates(x) * 0.5)
        return Facts(
            mirror_mu=prior.mirror(mu),
            value_mu=prior.value(mu),
            value_x=prior.value(x),
            value_y=prior.value(y),
            mu_s=mu @ s,
            x_s=x @ s,
            x_t=x @ t,
            d_x_mu=prior.divergence(x, mu),
            d_mu_mu=prior.divergence(mu, mu),
            d_x_y=prior.divergence(x, y),
            d_y_mu=prior.divergence(y, mu),
            three_points=(prior.mirror(y) - prior.mirror(mu)) @ (x - y),
            log_density=prior.log_density(x, mu, 3.0),
        )

    return Family(jax.jit(prior.inverse_mirror), jax.jit(prior.conjugate), jax.jit(facts))


def natural(name: str) -> st.SearchStrategy[list[float]]:
    """Natural parameters within 10; negative for the Exponential."""
    numbers = st.floats(-10, -0.05) if name == "exponential" else st.floats(-10, 10)
    return st.lists(numbers, min_size=D, max_size=D)


@pytest.mark.parametrize("name", FAMILIES)
def test_identities_at_many_points(name: str) -> None:
    family = compiled(name)

    @settings(max_examples=40, deadline=None, database=None)
    @given(natural(name), natural(name))
    def run(s_list: list[float], t_list: list[float]) -> None:
        s, t = vector(s_list), vector(t_list)
        mu, x = family.inverse_mirror(s), family.inverse_mirror(t)
        facts = jax.tree.map(np.asarray, family.facts(s, t, mu, x))
        g_s, g_t = float(family.conjugate(s)), float(family.conjugate(t))
        check_mirror_maps_are_inverse(family, facts, s, mu)
        check_the_generator_is_its_own_biconjugate(facts, g_s)
        check_divergence_in_its_three_forms(facts, g_s, g_t)
        check_three_point_identity_and_log_density(facts, g_s)

    run()


def check_mirror_maps_are_inverse(family: Family, facts: Facts, s: Vector, mu: Vector) -> None:
    """s -> mu -> s, and mu -> s -> mu."""
    close(flat(facts.mirror_mu), flat(s), 10)
    close(flat(family.inverse_mirror(facts.mirror_mu)), flat(mu), max(1e-4, float(np.abs(flat(mu)).max())))


def check_the_generator_is_its_own_biconjugate(facts: Facts, g_s: float) -> None:
    """Fenchel-Young with equality at the dual point, and as a bound elsewhere: g** = g."""
    size = 1 + abs(facts.value_mu) + abs(g_s)
    assert abs(facts.value_mu + g_s - facts.mu_s) <= 1e-8 * size
    assert facts.value_x + g_s - facts.x_s >= -1e-8 * (size + abs(facts.x_s))


def check_divergence_in_its_three_forms(facts: Facts, g_s: float, g_t: float) -> None:
    """D_{g*}(x, mu) = g*(x) + g(s) - <x, s> = D_g(s, grad g*(x)) >= 0, and 0 at x = mu."""
    size = 1 + max(map(abs, (facts.value_x, g_s, facts.x_s, facts.value_mu, facts.mu_s)))
    close(facts.d_x_mu, facts.value_x + g_s - facts.x_s, size)
    close(facts.d_x_mu, g_s - g_t - (facts.x_s - facts.x_t), size + abs(g_t))
    assert facts.d_x_mu >= -1e-8 * size
    assert abs(facts.d_mu_mu) <= 1e-12 * size


def check_three_point_identity_and_log_density(facts: Facts, g_s: float) -> None:
    """D(x, z) = D(x, y) + D(y, z) + <grad g*(y) - grad g*(z), x - y>; log p = lam (<x, s> - g(s)) = lam (g* - D)."""
    parts = (facts.d_x_y, facts.d_y_mu, facts.three_points)
    values = (facts.value_x, facts.value_y, facts.value_mu)
    size = 1 + max(map(abs, values)) + max(map(abs, parts)) + abs(facts.x_s)
    close(facts.d_x_mu, sum(parts), size)
    close(facts.log_density, 3 * (facts.x_s - g_s), 3 * size)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_minimises_the_expected_divergence(name: str) -> None:
    """E D(X, m) has zero gradient in m at m = E X (Banerjee et al. 2005), for any X."""
    prior, rng = FAMILIES[name], np.random.default_rng(0)
    points = [prior.to_mean(vector(x)) for x in rng.normal(size=(5, D))]
    weights = rng.dirichlet(np.ones(5))
    mean = vector(sum(w * flat(x) for w, x in zip(weights, points, strict=True)))

    @jax.jit
    @jax.value_and_grad
    def expected(m: Vector) -> Array:
        stacked = Vector(jnp.stack([x.tree for x in points]))
        return jnp.asarray(weights) @ jax.vmap(lambda x: prior.divergence(x, m))(stacked)

    least, slope = expected(mean)
    close(flat(slope), np.zeros(D))
    for away in 0.1 * rng.normal(size=(3, D)):
        other = prior.to_mean(prior.to_coordinates(mean) + vector(away))
        assert float(expected(other)[0]) > float(least)


def test_the_hessian_of_a_users_generator() -> None:
    x, v = vector([0.4, -1.1, 0.9]), vector([1.0, -2.0, 0.5])
    close(flat(FAMILIES["user"].curvature(x, v)), (1 + 3 * flat(x) ** 2) * flat(v))


# -- proximal points and envelopes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_envelope_grad_is_the_derivative_of_the_envelope(name: str) -> None:
    gradient = flat(solve(name)(vector(MU * 0.5)).gradient)
    for k, e in enumerate(1e-5 * np.eye(D)):
        above, below = (float(solve(name)(vector(MU * 0.5 + way * e)).envelope) for way in (1, -1))
        assert gradient[k] == pytest.approx((above - below) / 2e-5, rel=1e-7, abs=1e-8)


def test_solvers_agree_and_counts_are_kept() -> None:
    def prox(K: int, tol: float = 0.0, alpha: float = 0.1, solver: str = "sgd") -> np.ndarray:
        start = vector(np.zeros(D))
        return flat(FAMILIES["gaussian"].prox(jax.grad(f), vector(MU), start, LAM, alpha, K, solver, tol))

    exact = flat(solve("gaussian")(vector(MU)).theta)
    np.testing.assert_allclose(prox(3000), exact, rtol=1e-10)
    np.testing.assert_allclose(prox(3000, alpha=0.02, solver="adam"), exact, atol=1e-3)
    one = -0.1 * (H * (0 - C) + LAM * (0 - MU))
    np.testing.assert_allclose(prox(1), one, rtol=1e-12)
    np.testing.assert_allclose(prox(1, tol=1e-13), one, rtol=1e-12)  # K bounds the tolerance


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "user"])
def test_a_large_lambda_ties_theta_to_mu(name: str) -> None:
    theta = FAMILIES[name].prox(jax.grad(f), vector(MU), vector(MU), 1e6, 1e-7, 2000)
    np.testing.assert_allclose(flat(theta), MU, atol=3e-5)


# -- the table, and generators that are refused ----------------------------------------------------------------------------


class Concave(Prior):
    def value(self, x: Vector) -> Array:
        return -0.5 * (x @ x)


class Broken(Prior):
    def value(self, x: Vector) -> Array:
        return jnp.log(x.tree).sum()


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (Concave(), "Concave: its generator is not strictly convex"),
        (Broken(), "Broken: its generator is not finite"),
    ],
)
def test_a_generator_that_is_not_convex_is_refused(prior: Prior, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        check_prior(prior, vector(np.zeros(D)))


@pytest.mark.parametrize("name", FAMILIES)
def test_good_priors_pass_the_convexity_check(name: str) -> None:
    check_prior(FAMILIES[name], vector(np.zeros(D)))


def test_priors_by_name() -> None:
    assert [*PRIORS, "user"] == list(FAMILIES)
    assert all(type(find_prior(name)) is type(FAMILIES[name]) for name in PRIORS)
    assert find_prior(FAMILIES["user"]) is FAMILIES["user"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gausian", "unknown prior 'gausian' .did you mean 'gaussian'"),
        (Concave, "a prior is one of gaussian, .*, or an object of a subclass of .*Prior; given: <class .*Concave"),
    ],
)
def test_what_is_no_prior_is_told(given: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        find_prior(given)
