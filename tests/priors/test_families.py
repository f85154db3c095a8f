"""Every family: conjugacy, mirror maps, divergence, identities, against mpmath and against automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from fedprior.errors import FedpriorError
from fedprior.priors.bregman import Prior, check_prior
from fedprior.priors.families import (
    PRIORS,
    Bernoulli,
    DenseGaussian,
    DiagonalGaussian,
    Exponential,
    Gaussian,
    LowRankGaussian,
    Poisson,
    find_prior,
)
from fedprior.vectors import Vector

D = 3
RNG = np.random.default_rng(0)
MATRIX = np.array([[2.0, 0.3, -0.4], [0.3, 1.0, 0.2], [-0.4, 0.2, 0.7]])


class SquaredNormPlusQuartic(Prior):
    """A user's own generator: nothing but its value."""

    def value(self, x: Vector) -> Array:
        return 0.5 * (x @ x) + 0.25 * (x * x) @ (x * x)


def family(name: str) -> Prior:
    return {
        "gaussian": Gaussian(),
        "gaussian-diagonal": DiagonalGaussian(Vector(jnp.array([0.5, 2.0, 1.5]))),
        "gaussian-lowrank": LowRankGaussian(Vector(jnp.array([[1.0, -0.5, 0.2], [0.0, 0.3, 1.0]])), 0.7),
        "gaussian-dense": DenseGaussian(MATRIX),
        "bernoulli": Bernoulli(),
        "poisson": Poisson(),
        "exponential": Exponential(),
        "user": SquaredNormPlusQuartic(),
    }[name]


NAMES = [*PRIORS, "user"]
pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """Hypothesis needs the fixture outside the examples."""


def natural(name: str) -> st.SearchStrategy[list[float]]:
    """Natural parameters within 10; negative for the Exponential."""
    numbers = st.floats(-10, -0.05) if name == "exponential" else st.floats(-10, 10)
    return st.lists(numbers, min_size=D, max_size=D)


def vector(x: Any) -> Vector:
    return Vector(jnp.asarray(x, jnp.float64))


def flat(v: Vector) -> np.ndarray:
    return np.asarray(v.tree)


def close(a: Any, b: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-8, atol=1e-8 * scale)


def over_examples(name: str, check: Callable[[Prior, Vector, Vector, Vector, Vector], None]) -> None:
    """Run a check on (prior, s, mu = grad g(s), t, x = grad g(t)) for many s, t."""
    prior = family(name)

    @settings(max_examples=6 if name == "user" else 25, deadline=None, database=None)  # Newton's method is slow here
    @given(natural(name), natural(name))
    def run(s: list[float], t: list[float]) -> None:
        a, b = vector(s), vector(t)
        check(prior, a, prior.inverse_mirror(a), b, prior.inverse_mirror(b))

    run()


@pytest.mark.parametrize("name", NAMES)
def test_mirror_maps_are_inverse_and_the_generator_is_its_own_biconjugate(name: str) -> None:
    def check(prior: Prior, s: Vector, mu: Vector, t: Vector, x: Vector) -> None:
        close(flat(prior.mirror(mu)), flat(s), 10)
        close(flat(prior.inverse_mirror(prior.mirror(x))), flat(x), max(1e-4, float(np.abs(flat(x)).max())))
        # Fenchel-Young with equality at the dual point, and as a bound elsewhere: g** = g
        young = float(prior.value(mu) + prior.conjugate(s) - mu @ s)
        size = 1 + abs(float(prior.value(mu))) + abs(float(prior.conjugate(s)))
        assert abs(young) <= 1e-8 * size
        assert float(prior.value(x) + prior.conjugate(s) - x @ s) >= -1e-8 * (size + abs(float(x @ s)))

    over_examples(name, check)


@pytest.mark.parametrize("name", NAMES)
def test_divergence_in_its_three_forms(name: str) -> None:
    """D_{g*}(x, mu) = g*(x) + g(s) - <x, s> = D_g(s, grad g*(x)) >= 0, and 0 at x = mu."""

    def check(prior: Prior, s: Vector, mu: Vector, t: Vector, x: Vector) -> None:
        d = float(prior.divergence(x, mu))
        terms = [float(prior.value(x)), float(prior.conjugate(s)), float(x @ s), float(prior.value(mu)), float(mu @ s)]
        size = 1 + max(map(abs, terms))
        close(d, terms[0] + terms[1] - terms[2], size)
        dual = float(prior.conjugate(s) - prior.conjugate(t) - x @ (s - t))
        close(d, dual, size + abs(float(prior.conjugate(t))))
        assert d >= -1e-8 * size
        assert abs(float(prior.divergence(mu, mu))) <= 1e-12 * size

    over_examples(name, check)


@pytest.mark.parametrize("name", NAMES)
def test_three_point_identity_and_log_density(name: str) -> None:
    """D(x, z) = D(x, y) + D(y, z) + <grad g*(y) - grad g*(z), x - y>; log p = lam (<x, s> - g(s)) = lam (g* - D)."""

    def check(prior: Prior, s: Vector, mu: Vector, t: Vector, x: Vector) -> None:
        y = prior.to_mean(prior.to_coordinates(mu) * 0.5 + prior.to_coordinates(x) * 0.5)
        left = float(prior.divergence(x, mu))
        parts = [
            float(prior.divergence(x, y)),
            float(prior.divergence(y, mu)),
            float((prior.mirror(y) - prior.mirror(mu)) @ (x - y)),
        ]
        size = 1 + max(abs(float(prior.value(v))) for v in (x, y, mu)) + max(map(abs, parts)) + abs(float(x @ s))
        close(left, sum(parts), size)
        close(float(prior.log_density(x, mu, 3.0)), 3 * float(x @ s - prior.conjugate(s)), 3 * size)

    over_examples(name, check)


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_minimises_the_expected_divergence(name: str) -> None:
    """E D(X, m) has zero gradient in m at m = E X (Banerjee et al. 2005), for any X."""
    prior = family(name)
    points = [prior.to_mean(vector(RNG.normal(size=D))) for _ in range(5)]
    weights = RNG.dirichlet(np.ones(5))
    mean = vector(sum(w * flat(x) for w, x in zip(weights, points, strict=True)))

    def expected(m: Vector) -> Array:
        return sum((w * prior.divergence(x, m) for w, x in zip(weights, points, strict=True)), jnp.zeros(()))

    close(flat(jax.grad(expected)(mean)), np.zeros(D))
    for _ in range(3):
        other = prior.to_mean(prior.to_coordinates(mean) + vector(0.1 * RNG.normal(size=D)))
        assert float(expected(other)) > float(expected(mean))


GENERATORS: dict[str, Callable[[Any], Any]] = {  # one coordinate, for mpmath
    "bernoulli": lambda x: x * mp.log(x) + (1 - x) * mp.log(1 - x),
    "poisson": lambda x: x * mp.log(x) - x,
    "exponential": lambda x: -1 - mp.log(x),
    "gaussian": lambda x: x * x / 2,
}


@pytest.mark.parametrize("name", NAMES)
def test_hessian_products_against_mpmath(name: str) -> None:
    prior = family(name)
    x, v = prior.to_mean(vector([0.4, -1.1, 0.9])), vector([1.0, -2.0, 0.5])
    ours = flat(prior.curvature(x, v))
    with mp.workdps(40):
        if name in GENERATORS:
            theirs = [
                float(mp.diff(GENERATORS[name], mp.mpf(float(a)), 2) * b) for a, b in zip(flat(x), flat(v), strict=True)
            ]
        elif name == "user":
            theirs = [float((1 + 3 * mp.mpf(float(a)) ** 2) * b) for a, b in zip(flat(x), flat(v), strict=True)]
        else:
            theirs = precision(name) @ flat(v)
    close(ours, theirs)


def precision(name: str) -> np.ndarray:
    f = np.array([[1.0, -0.5, 0.2], [0.0, 0.3, 1.0]])
    return {
        "gaussian": np.eye(D),
        "gaussian-diagonal": np.diag([0.5, 2.0, 1.5]),
        "gaussian-lowrank": 0.7 * np.eye(D) + f.T @ f,
        "gaussian-dense": MATRIX,
    }[name]


@pytest.mark.parametrize("name", NAMES)
def test_closed_forms_equal_automatic_differentiation(name: str) -> None:
    prior = family(name)
    u, v = vector([0.4, -1.1, 0.9]), vector([-0.2, 0.3, 1.4])
    x, s = prior.to_mean(u), prior.mirror(prior.to_mean(v))
    close(flat(prior.mirror(x)), flat(Prior.mirror(prior, x)))
    close(flat(prior.curvature(x, v)), flat(Prior.curvature(prior, x, v)))
    close(flat(prior.pull(u, v)), flat(Prior.pull(prior, u, v)))
    close(flat(prior.push(v, u)), flat(Prior.push(prior, v, u)))
    close(flat(prior.inverse_mirror(s)), flat(Prior.inverse_mirror(prior, s)))
    close(float(prior.conjugate(s)), float(Prior.conjugate(prior, s)))
    close(flat(prior.to_coordinates(prior.to_mean(u))), flat(u))


def test_defaults_bind_to_a_models_parameters() -> None:
    like = Vector({"w": jnp.ones((4, 6)), "b": jnp.ones(4)})
    diagonal = find_prior("gaussian-diagonal").bind(like)
    mean = float(diagonal.mirror(like).tree["w"].sum() + diagonal.mirror(like).tree["b"].sum()) / like.size
    assert mean == pytest.approx(1.0)
    assert float(diagonal.mirror(like).tree["w"][0, 0]) == pytest.approx(6 * float(diagonal.mirror(like).tree["b"][0]))
    for name in ("gaussian-lowrank", "gaussian-dense"):
        bound = find_prior(name).bind(like)
        matrix = np.stack(
            [
                np.concatenate([np.ravel(a) for a in jax.tree.leaves(bound.mirror(unit(like, i)))])
                for i in range(like.size)
            ]
        )
        eigenvalues = np.linalg.eigvalsh(matrix)
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-7)
        assert eigenvalues[0] > 0.05
        assert eigenvalues[-1] < 1.2  # no stiffer than the spherical one, so that the same steps are stable


def unit(like: Vector, i: int) -> Vector:
    leaves, structure = jax.tree.flatten(like)
    flat_, out, at = np.eye(like.size)[i], [], 0
    for leaf in leaves:
        out.append(jnp.asarray(flat_[at : at + leaf.size].reshape(leaf.shape)))
        at += leaf.size
    return jax.tree.unflatten(structure, out)


class Concave(Prior):
    def value(self, x: Vector) -> Array:
        return -0.5 * (x @ x)


class Broken(Prior):
    def value(self, x: Vector) -> Array:
        return jnp.log(x.tree).sum()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: check_prior(Concave(), vector(np.zeros(D))), "Concave: its generator is not strictly convex"),
        (lambda: check_prior(Broken(), vector(np.zeros(D))), "Broken: its generator is not finite"),
        (lambda: Bernoulli().to_coordinates(vector([0.5, 1.5, 0.1])), r"mean 1.5 is outside its domain \(0, 1\)"),
        (
            lambda: Poisson().to_coordinates(vector([1.0, -2.0, 1.0])),
            r"Poisson: mean -2 is outside its domain \(0, inf\)",
        ),
        (lambda: DiagonalGaussian(vector([1.0, 0.0, 1.0])), "precision 0 is not valid; it must be above 0"),
        (lambda: DenseGaussian(np.array([[1.0, 2.0], [2.0, 1.0]])), "not positive definite"),
        (lambda: DenseGaussian(np.ones((2, 3))), "must be a symmetric matrix"),
        (lambda: LowRankGaussian(diagonal=0.0), "needs a diagonal above 0"),
        (lambda: DenseGaussian(MATRIX).bind(vector(np.zeros(4))), "precision of dimension 3 for 4 parameters"),
        (lambda: DiagonalGaussian(vector(np.ones(3))).bind(vector(np.zeros(4))), "do not fit"),
        (lambda: DenseGaussian().bind(vector(np.zeros(2001))), "2,001 parameters, and a dense precision is for 2,000"),
        (lambda: DiagonalGaussian().mirror(vector(np.zeros(3))), "has no precision yet"),
        (lambda: find_prior("gausian"), "did you mean 'gaussian'"),
    ],
)
def test_bad_priors_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make()


def test_good_priors_pass_the_convexity_check() -> None:
    for name in NAMES:
        check_prior(family(name), vector(np.zeros(D)))
