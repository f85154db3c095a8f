"""Bregman divergences, proximal points and envelopes from one convex generator.

A prior of the scaled exponential family enters the method only through its generator g* on mean parameters
(Shi et al., "PRIOR", NeurIPS 2023, section "Preliminary"):

    D(x, mu) = g*(x) - g*(mu) - <grad g*(mu), x - mu>
    prox(mu) = argmin_x f(x) + lam D(x, mu)
    grad env(mu) = lam Hess g*(mu) (mu - prox(mu))

A new prior is one function ``value``; everything else follows by automatic differentiation, and a family may give closed
forms where they are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import jax
from jax import Array

from fedprior.vectors import Vector, gradient_steps


@dataclass(frozen=True)
class Prior:
    """A strictly convex generator g* and what follows from it.

    >>> import jax.numpy as jnp
    >>> class Quartic(Prior):
    ...     def value(self, x):
    ...         return (x * x) @ (x * x) / 4
    >>> x, mu = Vector(jnp.array([2.0])), Vector(jnp.array([1.0]))
    >>> float(Quartic().divergence(x, mu)), float(Quartic().mirror(x).tree[0])
    (2.75, 8.0)
    """

    def value(self, x: Vector) -> Array:
        """g*(x)."""
        raise NotImplementedError

    def mirror(self, x: Vector) -> Vector:
        """grad g*(x): from mean to natural parameters."""
        return cast(Vector, jax.grad(self.value)(x))

    def curvature(self, x: Vector, v: Vector) -> Vector:
        """Hess g*(x) v."""
        return cast(Vector, jax.jvp(self.mirror, (x,), (v,))[1])

    def divergence(self, x: Vector, mu: Vector) -> Array:
        """D(x, mu), never negative, zero only at x = mu."""
        return self.value(x) - self.value(mu) - self.mirror(mu) @ (x - mu)

    def prox(
        self, grad: Callable[[Vector], Vector], mu: Vector, start: Vector, lam: float, alpha: float, K: int
    ) -> Vector:
        """K gradient steps on f(x) + lam D(x, mu), from ``start``; ``grad`` is the gradient of f."""
        s = self.mirror(mu)
        return gradient_steps(lambda x: grad(x) + lam * (self.mirror(x) - s), start, alpha, K)

    def envelope_grad(self, mu: Vector, theta: Vector, lam: float) -> Vector:
        """Gradient of the envelope at mu, given the proximal point theta: lam Hess g*(mu) (mu - theta)."""
        return lam * self.curvature(mu, mu - theta)
