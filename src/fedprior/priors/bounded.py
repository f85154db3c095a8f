"""Families whose mean parameters are bounded: Bernoulli, Poisson and Exponential.

Each acts on every parameter by itself, through its mean in (0, 1) or (0, inf). The coordinates are the logit or the
logarithm of that mean, and these coordinates are the model's parameters. The formulas are derived from
D = g*(x) + g(s) - <x, s>, not copied from the paper's table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.priors.bregman import Prior


@dataclass(frozen=True)
class Bernoulli(Prior):
    """Mean x in (0, 1): g*(x) = x log x + (1 - x) log(1 - x), g(s) = log(1 + e^s), coordinates s = logit(x).

    >>> mean = Vector(jnp.array([0.3])), Vector(jnp.array([0.6]))
    >>> round(float(Bernoulli().divergence(*mean)), 3)
    0.184
    """

    def value(self, x: Vector) -> Array:
        """x log x + (1 - x) log(1 - x): the negative entropy."""
        return _total(lambda x: jax.scipy.special.xlogy(x, x) + jax.scipy.special.xlog1py(1 - x, -x), x)

    def conjugate(self, s: Vector) -> Array:
        """log(1 + e^s)."""
        return _total(jax.nn.softplus, s)

    def mirror(self, x: Vector) -> Vector:
        """logit(x)."""
        return x.map(lambda x: jnp.log(x) - jnp.log1p(-x))

    def inverse_mirror(self, s: Vector) -> Vector:
        """1 / (1 + e^-s)."""
        return s.map(jax.nn.sigmoid)

    def to_mean(self, u: Vector) -> Vector:
        """1 / (1 + e^-u)."""
        return u.map(jax.nn.sigmoid)

    def to_coordinates(self, x: Vector) -> Vector:
        """logit(x)."""
        _check_inside("Bernoulli", x, 0, 1)
        return self.mirror(x)

    def pull(self, u: Vector, v: Vector) -> Vector:
        """sigma'(u) (u - v)."""
        return u.map(lambda u, v: jax.nn.sigmoid(u) * jax.nn.sigmoid(-u) * (u - v), v)

    def push(self, v: Vector, u: Vector) -> Vector:
        """sigma(v) - sigma(u)."""
        return v.map(lambda v, u: jax.nn.sigmoid(v) - jax.nn.sigmoid(u), u)


@dataclass(frozen=True)
class _Positive(Prior):
    """Mean x > 0, with the coordinates log x."""

    def to_mean(self, u: Vector) -> Vector:
        """e^u."""
        return u.map(jnp.exp)

    def to_coordinates(self, x: Vector) -> Vector:
        """log x."""
        _check_inside(type(self).__name__, x, 0, np.inf)
        return x.map(jnp.log)


@dataclass(frozen=True)
class Poisson(_Positive):
    """Mean x > 0: g*(x) = x log x - x, g(s) = e^s, coordinates s = log x.

    >>> round(float(Poisson().divergence(Vector(jnp.array([2.0])), Vector(jnp.array([1.0])))), 4)
    0.3863
    """

    def value(self, x: Vector) -> Array:
        """x log x - x."""
        return _total(lambda x: jax.scipy.special.xlogy(x, x) - x, x)

    def conjugate(self, s: Vector) -> Array:
        """e^s."""
        return _total(jnp.exp, s)

    def mirror(self, x: Vector) -> Vector:
        """log x."""
        return x.map(jnp.log)

    def inverse_mirror(self, s: Vector) -> Vector:
        """e^s."""
        return s.map(jnp.exp)

    def pull(self, u: Vector, v: Vector) -> Vector:
        """e^u (u - v)."""
        return u.map(lambda u, v: jnp.exp(u) * (u - v), v)

    def push(self, v: Vector, u: Vector) -> Vector:
        """e^v - e^u."""
        return v.map(lambda v, u: jnp.exp(v) - jnp.exp(u), u)


@dataclass(frozen=True)
class Exponential(_Positive):
    """Mean x > 0: g*(x) = -1 - log x, g(s) = -log(-s) for s < 0, s = -1/x; coordinates log x.

    A step on s itself could leave s < 0; one on log x cannot.

    >>> round(float(Exponential().divergence(Vector(jnp.array([2.0])), Vector(jnp.array([1.0])))), 4)
    0.3069
    """

    def value(self, x: Vector) -> Array:
        """-1 - log x."""
        return _total(lambda x: -1 - jnp.log(x), x)

    def conjugate(self, s: Vector) -> Array:
        """-log(-s)."""
        return _total(lambda s: -jnp.log(-s), s)

    def mirror(self, x: Vector) -> Vector:
        """-1 / x."""
        return x.map(lambda x: -1 / x)

    def inverse_mirror(self, s: Vector) -> Vector:
        """-1 / s."""
        return s.map(lambda s: -1 / s)

    def pull(self, u: Vector, v: Vector) -> Vector:
        """e^(u - v) - 1."""
        return u.map(lambda u, v: jnp.expm1(u - v), v)

    def push(self, v: Vector, u: Vector) -> Vector:
        """1 - e^(u - v)."""
        return v.map(lambda v, u: -jnp.expm1(u - v), u)


def _total(f: Callable[[Array], Array], x: Vector) -> Array:
    """The sum of f over all parameters."""
    return sum((jnp.sum(f(leaf)) for leaf in jax.tree.leaves(x)), jnp.zeros(()))


def _check_inside(name: str, x: Vector, low: float, high: float) -> None:
    """Refuse points outside the open interval; in a program that is being traced values are unknown and not checked."""
    for leaf in jax.tree.leaves(x):
        if not isinstance(leaf, jax.core.Tracer) and not bool(jnp.all((leaf > low) & (leaf < high))):
            outside = float(leaf[~((leaf > low) & (leaf < high))].ravel()[0])
            raise FedpriorError(f"{name}: mean {outside:g} is outside its domain ({low:g}, {high:g})")
