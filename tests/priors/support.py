"""What the tests of priors share: one object and one set of compiled functions for each family, in three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.vectors import Vector
from fedprior.priors.bounded import Bernoulli, Exponential, Poisson
from fedprior.priors.bregman import Prior
from fedprior.priors.gaussians import DenseGaussian, DiagonalGaussian, Gaussian, LowRankGaussian

D = 3
DIAGONAL = np.array([0.5, 2.0, 1.5])
FACTORS = np.array([[1.0, -0.5, 0.2], [0.0, 0.3, 1.0]])
MATRIX = np.array([[2.0, 0.3, -0.4], [0.3, 1.0, 0.2], [-0.4, 0.2, 0.7]])


class SquaredNormPlusQuartic(Prior):
    """A user's own generator: nothing but its value."""

    def value(self, x: Vector) -> Array:
        return 0.5 * (x @ x) + 0.25 * (x * x) @ (x * x)


FAMILIES: dict[str, Prior] = {
    "gaussian": Gaussian(),
    "gaussian-diagonal": DiagonalGaussian(Vector(DIAGONAL)),
    "gaussian-lowrank": LowRankGaussian(Vector(FACTORS), 0.7),
    "gaussian-dense": DenseGaussian(MATRIX),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "exponential": Exponential(),
    "user": SquaredNormPlusQuartic(),
}
PRECISIONS = {
    "gaussian": np.eye(D),
    "gaussian-diagonal": np.diag(DIAGONAL),
    "gaussian-lowrank": 0.7 * np.eye(D) + FACTORS.T @ FACTORS,
    "gaussian-dense": MATRIX,
}
BOUNDED = ("bernoulli", "poisson", "exponential")


def vector(x: Any) -> Vector:
    return Vector(jnp.asarray(x, jnp.float64))


def flat(v: Vector) -> np.ndarray:
    return np.asarray(v.tree)


def close(a: Any, b: Any, scale: float = 1.0) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-8, atol=1e-8 * scale)


def check_closed_forms(name: str) -> None:
    """What a family gives in closed form is what automatic differentiation makes of its generator."""
    prior = FAMILIES[name]

    @jax.jit
    def both(u: Vector, v: Vector) -> list[tuple[Any, Any]]:
        x, s = prior.to_mean(u), prior.mirror(prior.to_mean(v))
        return [
            (prior.mirror(x), Prior.mirror(prior, x)),
            (prior.curvature(x, v), Prior.curvature(prior, x, v)),
            (prior.pull(u, v), Prior.pull(prior, u, v)),
            (prior.push(v, u), Prior.push(prior, v, u)),
            (prior.inverse_mirror(s), Prior.inverse_mirror(prior, s)),
            (prior.conjugate(s), Prior.conjugate(prior, s)),
            (prior.to_coordinates(prior.to_mean(u)), u),
        ]

    for ours, automatic in both(vector([0.4, -1.1, 0.9]), vector([-0.2, 0.3, 1.4])):
        jax.tree.map(close, ours, automatic)


# -- proximal points on one quadratic --------------------------------------------------------------------------------------

H, C, LAM = np.array([0.5, 2.0, 1.0]), np.array([1.0, -2.0, 0.3]), 1.7
MU = np.array([0.4, 0.9, -1.2])


def f(u: Vector) -> Array:
    return 0.5 * jnp.sum(H * (u.tree - C) ** 2)


class Solved(NamedTuple):
    theta: Vector
    envelope: Array
    gradient: Vector  # of the envelope


@cache
def solve(name: str) -> Callable[[Vector], Solved]:
    """The proximal point of f at a mean, to 1e-13, and the envelope there."""
    prior = FAMILIES[name]

    @jax.jit
    def solved(v: Vector) -> Solved:
        theta = prior.prox(jax.grad(f), v, vector(np.zeros(D)), LAM, 0.05, 20_000, tol=1e-13)
        return Solved(theta, prior.envelope(f, v, theta, LAM), prior.envelope_grad(v, theta, LAM))

    return solved
