"""Gaussian priors, whose generator is a quadratic form of the precision P (the inverse covariance).

    g*(x) = x P x / 2,    g(s) = s P^-1 s / 2,    D(x, mu) = (x - mu) P (x - mu) / 2

The formulas are derived from D = g*(x) + g(s) - <x, s>, not copied from the paper's table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.priors.bregman import Prior

DENSE_LIMIT = 2000  # the most parameters that a dense precision is made for


@dataclass(frozen=True)
class Gaussian(Prior):
    """g*(x) = x P x / 2 for a symmetric positive definite P, given by its products; here P = I, the spherical Gaussian.

    The spherical Gaussian has the largest entropy for a given mean and scale, which is why the paper takes it.

    >>> float(Gaussian().divergence(Vector(jnp.array([3.0])), Vector(jnp.array([1.0]))))
    2.0
    """

    @property
    def spherical(self) -> bool:
        """True of this class itself, and of no subclass, since each has a P of its own."""
        return type(self) is Gaussian

    def times(self, x: Vector) -> Vector:
        """P x."""
        return x

    def solve(self, s: Vector) -> Vector:
        """P^-1 s."""
        return s

    def value(self, x: Vector) -> Array:
        """x P x / 2."""
        return 0.5 * (x @ self.times(x))

    def conjugate(self, s: Vector) -> Array:
        """s P^-1 s / 2."""
        return 0.5 * (s @ self.solve(s))

    def mirror(self, x: Vector) -> Vector:
        """P x."""
        return self.times(x)

    def inverse_mirror(self, s: Vector) -> Vector:
        """P^-1 s."""
        return self.solve(s)

    def curvature(self, x: Vector, v: Vector) -> Vector:
        """P v."""
        return self.times(v)

    def pull(self, u: Vector, v: Vector) -> Vector:
        """P (u - v)."""
        return self.times(u - v)

    def push(self, v: Vector, u: Vector) -> Vector:
        """P (v - u)."""
        return self.times(v - u)


@dataclass(frozen=True)
class DiagonalGaussian(Gaussian):
    """P = diag(d). Without a given d: each weight's fan-in over the mean fan-in, and 1 over it for biases.

    That default ties a parameter more tightly the wider its layer is: wide body layers stay near the prior's mean, while the
    narrow head and the biases are freer to be a client's own.

    >>> prior = DiagonalGaussian(Vector(jnp.array([1.0, 4.0])))
    >>> float(prior.divergence(Vector(jnp.array([1.0, 1.0])), Vector(jnp.array([0.0, 0.0]))))
    2.5
    """

    precision: Vector | None = None

    def __post_init__(self) -> None:
        if self.precision is not None:
            for leaf in jax.tree.leaves(self.precision):
                if not np.all(np.asarray(leaf) > 0):
                    smallest = float(np.min(leaf))
                    raise FedpriorError(f"DiagonalGaussian: precision {smallest:g} is not valid; it must be above 0")

    def bind(self, like: Vector) -> Prior:
        """The prior with its default precision; a given precision is checked against the shapes."""
        if self.precision is not None:
            _check_shapes("DiagonalGaussian", self.precision, like, whole=True)
            return self
        fan_in = like.map(lambda x: np.asarray(np.prod(x.shape[1:]) if x.ndim > 1 else 1.0, np.float32))
        mean = sum(float(f) * x.size for f, x in zip(*map(jax.tree.leaves, (fan_in, like)), strict=True)) / like.size
        return replace(self, precision=fan_in.map(lambda f: np.asarray(f / mean, np.float32)))

    def times(self, x: Vector) -> Vector:
        """d x, entry by entry."""
        return self._d * x

    def solve(self, s: Vector) -> Vector:
        """s / d, entry by entry."""
        return s / self._d

    @property
    def _d(self) -> Vector:
        if self.precision is None:
            raise FedpriorError("DiagonalGaussian has no precision yet; give one, or bind it to a parameter vector")
        return self.precision


@dataclass(frozen=True)
class LowRankGaussian(Gaussian):
    """P = d I + sum_k f_k f_k^T: stiffer along a few directions. Factors are stacked [r, ...].

    Without given factors: d = 1/2 and two random sign vectors of length sqrt(1/2), so that P has eigenvalues of about 1
    along them (as the spherical Gaussian has everywhere) and 1/2 elsewhere.

    >>> prior = LowRankGaussian(Vector(jnp.array([[1.0, 1.0]])), diagonal=1.0)
    >>> prior.solve(prior.times(Vector(jnp.array([3.0, -2.0])))).tree.tolist()
    [3.0, -2.0]
    """

    factors: Vector | None = None
    diagonal: float = 0.5

    def __post_init__(self) -> None:
        if not self.diagonal > 0:
            raise FedpriorError(
                f"LowRankGaussian: diagonal = {self.diagonal:g}; the precision needs a diagonal above 0"
            )

    def bind(self, like: Vector) -> Prior:
        """The prior with its default factors; given factors are checked against the shapes."""
        if self.factors is not None:
            ranks = {x.shape[0] if x.ndim else 0 for x in jax.tree.leaves(self.factors)}
            _check_shapes(
                "LowRankGaussian", self.factors, like.map(lambda x: np.empty((max(ranks, default=0), *x.shape)))
            )
            return self
        rng = np.random.default_rng(0)
        size = np.sqrt(0.5 / like.size)
        signs = like.map(lambda x: np.asarray(size * rng.choice([-1.0, 1.0], (2, *x.shape)), x.dtype))
        return replace(self, factors=signs)

    def times(self, x: Vector) -> Vector:
        """d x + F^T (F x)."""
        inner = sum(jax.tree.leaves(self._f.map(lambda f, a: jnp.tensordot(f, a, a.ndim), x).tree))  # [r]
        return x.map(lambda a, f: self.diagonal * a + jnp.tensordot(inner, f, 1), self._f)

    def solve(self, s: Vector) -> Vector:
        """By Woodbury: (s - F^T (d I_r + F F^T)^-1 F s) / d."""
        f = self._f
        rows = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(f)]
        gram = sum(a @ a.T for a in rows)
        inner = sum(a @ jnp.ravel(b) for a, b in zip(rows, jax.tree.leaves(s), strict=True))
        weights = jnp.linalg.solve(self.diagonal * jnp.eye(len(gram)) + gram, inner)
        return s.map(lambda b, a: (b - jnp.tensordot(weights, a, 1)) / self.diagonal, f)

    @property
    def _f(self) -> Vector:
        if self.factors is None:
            raise FedpriorError("LowRankGaussian has no factors yet; give some, or bind it to a parameter vector")
        return self.factors


@dataclass(frozen=True)
class DenseGaussian(Gaussian):
    """Any symmetric positive definite P [D, D] over the flattened parameters, for D up to 2,000.

    Without a given P: P_ij proportional to 2^-|i - j| with largest eigenvalue at most 1, which ties neighbours together.

    >>> prior = DenseGaussian(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> float(prior.value(Vector(jnp.array([1.0, 1.0]))))
    3.0
    """

    precision: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.precision is None:
            return
        p = np.asarray(self.precision)
        if p.ndim != 2 or p.shape[0] != p.shape[1] or not np.allclose(p, p.T):
            raise FedpriorError(f"DenseGaussian: the precision must be a symmetric matrix; given: shape {p.shape}")
        smallest = float(np.linalg.eigvalsh(p)[0])
        if not smallest > 0:
            raise FedpriorError(
                f"DenseGaussian: the precision is not positive definite (smallest eigenvalue {smallest:g})"
            )

    def bind(self, like: Vector) -> Prior:
        """The prior with its default precision; a given precision is checked against the shapes."""
        if like.size > DENSE_LIMIT:
            raise FedpriorError(
                f"DenseGaussian: {like.size:,} parameters, and a dense precision is for {DENSE_LIMIT:,} at most; "
                "use gaussian-lowrank or gaussian-diagonal"
            )
        if self.precision is None:
            i = np.arange(like.size)
            return replace(self, precision=(0.5 ** np.abs(i[:, None] - i) / 3).astype(np.float32))
        if len(self.precision) != like.size:
            raise FedpriorError(
                f"DenseGaussian: precision of dimension {len(self.precision)} for {like.size} parameters"
            )
        return self

    def times(self, x: Vector) -> Vector:
        """P x."""
        flat, back = ravel_pytree(x)
        return back(jnp.asarray(self._p, flat.dtype) @ flat)

    def solve(self, s: Vector) -> Vector:
        """P^-1 s."""
        flat, back = ravel_pytree(s)
        return back(jnp.linalg.solve(jnp.asarray(self._p, flat.dtype), flat))

    @property
    def _p(self) -> np.ndarray:
        if self.precision is None:
            raise FedpriorError("DenseGaussian has no precision yet; give one, or bind it to a parameter vector")
        return self.precision


def _check_shapes(name: str, given: Vector, like: Vector, whole: bool = False) -> None:
    """Refuse arrays that do not fit; ``whole``: one of shape () stands for a whole array of the same entry."""
    ours, theirs = ([np.shape(x) for x in jax.tree.leaves(v)] for v in (given, like))
    if len(ours) != len(theirs) or any(a != b and not (whole and a == ()) for a, b in zip(ours, theirs, strict=True)):
        raise FedpriorError(f"{name}: arrays of shapes {ours} do not fit these parameters, which need {theirs}")
    tree: Any = jax.tree.structure(given)
    if tree != jax.tree.structure(like):
        kinds = f"{type(given.tree).__name__}, not {type(like.tree).__name__}"
        raise FedpriorError(
            f"{name}: the arrays do not lie in a tree like that of the parameters w ({kinds}); make them by w.map"
        )
