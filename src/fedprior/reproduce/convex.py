"""Federated problems whose answer is known: quadratics in closed form, and ridge-regularised logistic regression.

In all of them the prior is the spherical Gaussian and the mean the identity, so that F_i is the Moreau envelope of f_i and
sigma_Phi = gamma_Phi = 0. The quadratics' quantities are in closed form; the optimum of the regression is found numerically.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import optimize

from fedprior.core.batch import Batch
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.data.federation import Federation, Samples

N, D = 20, 4  # clients, dimensions


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

    ridge: float = eqx.field(static=True, default=0.1)

    def init(self, key: Array) -> Vector:
        """Start away from the optimum."""
        return Vector(jnp.full((D,), 1.0))

    def losses(self, w: Vector, batch: Batch) -> Array:
        """One value per sample."""
        margin = (2 * batch.y - 1) * (batch.x @ w.tree)
        return jax.nn.softplus(-margin) + 0.5 * self.ridge * jnp.sum(w.tree**2)


@dataclass(frozen=True)
class Setting:
    """A federation with a known answer for one lambda."""

    name: str
    problem: Problem
    federation: Federation
    lam: float
    mu_f: float  # strong convexity of every f_i
    l_f: float  # smoothness of every f_i
    best: np.ndarray  # w*
    gap: Callable[[np.ndarray], float]  # D_F(w, w*) = F(w) - F(w*)
    batch: int

    @property
    def mu_envelope(self) -> float:
        """The envelope's strong convexity: lam mu_f / (lam + mu_f)."""
        return self.lam * self.mu_f / (self.lam + self.mu_f)

    @property
    def l_envelope(self) -> float:
        """The envelope's smoothness: lam L_f / (lam + L_f)."""
        return self.lam * self.l_f / (self.lam + self.l_f)

    def sigma(self) -> float:
        """sigma_{F,*}: the largest client gradient of F at w*."""
        return max(float(np.linalg.norm(self.slope(i, self.best))) for i in range(N))

    def slope(self, i: int, w: np.ndarray) -> np.ndarray:
        """grad F_i(w) = lam (w - prox_i(w))."""
        return self.lam * (w - self.prox(i, w))

    def prox(self, i: int, w: np.ndarray) -> np.ndarray:
        """Client i's proximal point on all of its samples."""
        return _prox(self.problem, self.federation, i, w, self.lam)


def _all_of(federation: Federation, i: int) -> Batch:
    x, y, start, size = (np.asarray(a) for a in federation.train)
    mine = slice(int(start[i]), int(start[i]) + int(size[i]))
    return Batch(jnp.asarray(x[mine]), jnp.asarray(y[mine]), jnp.ones(int(size[i])))


def _prox(problem: Problem, federation: Federation, i: int, w: np.ndarray, lam: float) -> np.ndarray:
    batch = _all_of(federation, i)
    value = jax.value_and_grad(lambda x: problem.loss(Vector(x), batch) + 0.5 * lam * jnp.sum((x - w) ** 2))
    minimum = optimize.minimize(
        lambda x: tuple(np.asarray(a, float) for a in value(jnp.asarray(x))), w, jac=True, tol=1e-14
    )
    return np.asarray(minimum.x)


def _federate(x: np.ndarray, y: np.ndarray, per_client: int) -> Federation:
    size = np.full(N, per_client, np.int32)
    samples = Samples(x, y.astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)
    return Federation(samples, samples, None, 2, "theory")


def quadratic(lam: float, noise: float = 0.0, per_client: int = 8, seed: int = 0) -> Setting:
    """Clients with their own centres and curvatures in [0.5, 2]; ``noise`` scatters a client's samples."""
    rng = np.random.default_rng(seed)
    centres, h = rng.normal(size=(N, D)), rng.uniform(0.5, 2.0, (N, D))
    scatter = rng.normal(size=(N, per_client, D)) * noise
    scatter -= scatter.mean(1, keepdims=True)  # the client's own optimum stays where it was
    c = (centres[:, None] + scatter).reshape(-1, D)
    x = np.concatenate([c, np.repeat(h, per_client, 0)], 1)
    envelope = h * lam / (h + lam)  # F_i(w) = 1/2 sum_d envelope_d (w_d - c_d)^2 + const
    best = (envelope * centres).sum(0) / envelope.sum(0)
    curve = envelope.mean(0)
    return Setting(
        "quadratic", RidgeQuadratic(), _federate(x, np.zeros(len(x)), per_client), lam, 0.5, 2.0, best,
        lambda w: float(0.5 * curve @ (w - best) ** 2), per_client,
    )  # fmt: skip


def logistic(lam: float, per_client: int = 32, seed: int = 0) -> Setting:
    """Clients whose labels follow weights of their own; w* found by BFGS on the envelope."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(N * per_client, D))
    truth = np.repeat(rng.normal(size=(N, D)), per_client, 0)
    y = (rng.uniform(size=len(a)) < 1 / (1 + np.exp(-(a * truth).sum(1)))).astype(np.int32)
    problem, federation = RidgeLogistic(), _federate(a, y, per_client)
    batches = [_all_of(federation, i) for i in range(N)]

    @jax.jit
    def envelope(w: Array) -> tuple[Array, Array]:
        """F(w) and its gradient, with every proximal point solved by Newton's method."""

        def one(x: Array, y: Array) -> tuple[Array, Array]:
            batch = Batch(x, y, jnp.ones(per_client))

            def objective(t: Array) -> Array:
                return problem.loss(Vector(t), batch) + 0.5 * lam * jnp.sum((t - w) ** 2)

            def newton(_: int, t: Array) -> Array:
                return t - jnp.linalg.solve(jax.hessian(objective)(t), jax.grad(objective)(t))

            theta = jax.lax.fori_loop(0, 12, newton, w)
            return objective(theta), lam * (w - theta)

        values, slopes = jax.vmap(one)(jnp.stack([b.x for b in batches]), jnp.stack([b.y for b in batches]))
        return values.mean(), slopes.mean(0)

    minimum = optimize.minimize(
        lambda w: tuple(np.asarray(v, float) for v in envelope(jnp.asarray(w))), np.zeros(D), jac=True, tol=1e-14
    )
    smooth = max(float(np.linalg.eigvalsh(np.asarray(b.x).T @ np.asarray(b.x) / (4 * per_client))[-1]) for b in batches)
    least = float(envelope(jnp.asarray(minimum.x))[0])
    return Setting(
        "logistic", problem, federation, lam, problem.ridge, problem.ridge + smooth, np.asarray(minimum.x),
        lambda w: float(envelope(jnp.asarray(w))[0]) - least, per_client,
    )  # fmt: skip
