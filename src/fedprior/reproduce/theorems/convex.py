"""Federated problems whose answer is known: quadratics in closed form, and ridge-regularised logistic regression.

The prior is the spherical Gaussian and the mean the identity, so that F_i is the Moreau envelope of f_i. A small lam makes
the envelopes well conditioned, since all their curvatures come close to lam: Theorem 1's bound on the step is largest there.

The quadratic federation has eight kinds of clients, each N / 8 times. F, w*, the moduli and sigma_{F,*} are thus the same
for every N, and N enters the error by the sampling of clients alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.data.federation import Federation, Samples

KINDS, D = 8, 4  # kinds of clients, dimensions


class RidgeQuadratic(Problem):
    """f(w) = mean of 1/2 sum_d h_d (w_d - c_d)^2; a sample is its centre and its curvature side by side."""

    def init(self, key: Array) -> Vector:
        """Start away from the optimum."""
        return Vector(jnp.full((D,), 1.0))

    def losses(self, w: Vector, batch: Batch) -> Array:
        """One value per sample."""
        c, h = batch.x[:, :D], batch.x[:, D:]
        return 0.5 * jnp.sum(h * (w.tree - c) ** 2, axis=1)


class RidgeLogistic(Problem):
    """f(w) = mean of log(1 + exp(-y <a, w>)) + ridge/2 ||w||^2, labels y in {0, 1} read as -1, 1."""

    ridge: float = eqx.field(static=True, default=0.5)

    def init(self, key: Array) -> Vector:
        """Start away from the optimum."""
        return Vector(jnp.full((D,), 1.0))

    def losses(self, w: Vector, batch: Batch) -> Array:
        """One value per sample."""
        margin = (2 * batch.y - 1) * (batch.x @ w.tree)
        return jax.nn.softplus(-margin) + 0.5 * self.ridge * jnp.sum(w.tree**2)


@dataclass(frozen=True, eq=False)
class Setting:
    """A federation with a known answer for one lambda."""

    name: str
    problem: Problem
    federation: Federation
    lam: float
    mu_f: float  # strong convexity of every f_i
    l_f: float  # smoothness of every f_i
    best: np.ndarray  # w*
    slope: Callable[[Array, Array], Array]  # (i, w) -> grad F_i(w)
    gap: Callable[[Array], Array]  # w -> D_F(w, w*) = F(w) - F(w*)
    batch: int

    @property
    def N(self) -> int:
        """The number of clients."""
        return self.federation.n_clients

    @property
    def mu_envelope(self) -> float:
        """The envelope's strong convexity: lam mu_f / (lam + mu_f)."""
        return self.lam * self.mu_f / (self.lam + self.mu_f)

    @property
    def l_envelope(self) -> float:
        """The envelope's smoothness: lam L_f / (lam + L_f)."""
        return self.lam * self.l_f / (self.lam + self.l_f)

    @property
    def sigma(self) -> float:
        """sigma_{F,*}: the largest norm of a client's gradient at w*."""
        slopes = jax.vmap(self.slope, (0, None))(jnp.arange(self.N), jnp.asarray(self.best))
        return float(jnp.linalg.norm(slopes, axis=1).max())


@dataclass(frozen=True, eq=False)
class Quadratic(Setting):
    """A setting whose clients' centres and curvatures are known."""

    centres: np.ndarray  # [N, D]
    curvatures: np.ndarray  # [N, D]


def _federate(x: np.ndarray, y: np.ndarray, clients: int) -> Federation:
    size = np.full(clients, len(x) // clients, np.int32)
    samples = Samples(x, y.astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)
    return Federation(samples, samples, None, 2, "theory")


@lru_cache
def quadratic(lam: float = 1.0, N: int = KINDS, noise: float = 0.0, seed: int = 0) -> Quadratic:
    """Clients with their own centres and curvatures from 4 to 9; ``noise`` scatters the eight samples of a client."""
    if N % KINDS:
        raise ValueError(f"N = {N} is not a multiple of the {KINDS} kinds of clients")
    rng = np.random.default_rng(seed)
    centres, h = rng.normal(size=(KINDS, D)), rng.uniform(4.0, 9.0, (KINDS, D))
    h.flat[:2] = 4.0, 9.0  # the moduli are attained
    centres, h = np.tile(centres, (N // KINDS, 1)), np.tile(h, (N // KINDS, 1))
    per_client = 8 if noise else 1
    scatter = rng.normal(size=(N, per_client, D)) * noise
    scatter -= scatter.mean(1, keepdims=True)  # the client's own optimum stays where it was
    c = (centres[:, None] + scatter).reshape(-1, D)
    x = np.concatenate([c, np.repeat(h, per_client, 0)], 1)
    envelope = h * lam / (h + lam)  # F_i(w) = 1/2 sum_d envelope_d (w_d - c_d)^2 + const
    best = (envelope * centres).sum(0) / envelope.sum(0)
    curve = envelope.mean(0)
    return Quadratic(
        name="quadratic", problem=RidgeQuadratic(), federation=_federate(x, np.zeros(len(x)), N), lam=lam, mu_f=4.0, l_f=9.0,
        best=best, slope=lambda i, w: jnp.asarray(envelope)[i] * (w - jnp.asarray(centres)[i]),
        gap=lambda w: 0.5 * jnp.asarray(curve) @ (w - best) ** 2, batch=per_client, centres=centres, curvatures=h,
    )  # fmt: skip


@lru_cache
def logistic(lam: float = 1.0, N: int = 16, per_client: int = 32, seed: int = 0) -> Setting:
    """Clients whose labels follow weights of their own; proximal points and w* are found by Newton's method."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N * per_client, D))
    truth = np.repeat(rng.normal(size=(N, D)), per_client, 0)
    y = (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-(a * truth).sum(1)))).astype(np.int32)
    problem = RidgeLogistic()
    xs, ys = a.reshape(N, per_client, D), y.reshape(N, per_client)

    def objective(i: Array, theta: Array, w: Array) -> Array:
        batch = Batch(jnp.asarray(xs)[i], jnp.asarray(ys)[i], jnp.ones(per_client))
        return problem.loss(Vector(theta), batch) + 0.5 * lam * jnp.sum((theta - w) ** 2)

    def prox(i: Array, w: Array) -> Array:
        def newton(_: int, theta: Array) -> Array:
            return theta - jnp.linalg.solve(jax.hessian(objective, 1)(i, theta, w), jax.grad(objective, 1)(i, theta, w))

        return jax.lax.fori_loop(0, 5, newton, w)  # quadratic convergence from nearby: exact to rounding

    def slope(i: Array, w: Array) -> Array:
        return lam * (w - prox(i, w))

    def value(w: Array) -> Array:
        return jnp.mean(jax.vmap(lambda i: objective(i, prox(i, w), w))(jnp.arange(N)))

    def total(w: Array) -> Array:
        return jnp.mean(jax.vmap(slope, (0, None))(jnp.arange(N), w), 0)

    newton = jax.jit(lambda w: w - jnp.linalg.solve(jax.jacfwd(total)(w), total(w)))
    best = jnp.zeros(D)
    for _ in range(12):
        best = newton(best)
    smooth = max(float(np.linalg.eigvalsh(x.T @ x / (4 * per_client))[-1]) for x in xs)
    least = jax.jit(value)(best)
    return Setting(
        name="logistic", problem=problem, federation=_federate(a, y, N), lam=lam, mu_f=problem.ridge,
        l_f=problem.ridge + smooth, best=np.asarray(best), slope=slope, gap=lambda w: value(w) - least, batch=per_client,
    )  # fmt: skip
