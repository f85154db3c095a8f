"""The generators: which prior each gives."""

from __future__ import annotations

from dataclasses import dataclass

from jax import Array

from fedprior.priors.bregman import Prior
from fedprior.vectors import Vector


@dataclass(frozen=True)
class SphericalGaussian(Prior):
    """g* = ||x||^2 / 2: the maximum-entropy prior for a given mean and scale, D(x, mu) = ||x - mu||^2 / 2.

    >>> import jax.numpy as jnp
    >>> float(SphericalGaussian().divergence(Vector(jnp.array([3.0])), Vector(jnp.array([1.0]))))
    2.0
    """

    def value(self, x: Vector) -> Array:
        """||x||^2 / 2."""
        return 0.5 * (x @ x)

    def mirror(self, x: Vector) -> Vector:
        """The identity: mean and natural parameters coincide."""
        return x

    def curvature(self, x: Vector, v: Vector) -> Vector:
        """The identity."""
        return v


PRIORS: dict[str, type[Prior]] = {"gaussian": SphericalGaussian}
