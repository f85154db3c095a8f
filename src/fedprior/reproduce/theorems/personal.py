"""Theorem 2: how far personal models are from w*, against lambda and against the meta-steps eta.

On quadratics a mean places mu_i(w) = c_i + b_i (w - c_i) with a diagonal b_i in closed form, k_i = lam / (lam + h_i):

    lg:   b = 1 - eta h                  a step along grad f_i
    meg:  b = (1 - eta) / (1 - eta k)    from mu = w - eta (w - theta), theta the proximal point of mu itself
    mh:   b = (1 - eta h - eta) / (1 - eta k)

All of the theorem follows: eta grad Phi_i(w) = (1 - b_i)(w - c_i), F_i(w) = 1/2 e_i b_i^2 (w - c_i)^2 with the envelope's
curvature e_i = k_i h_i, and the first-order gradient, which leaves Dmu out, e_i b_i (w - c_i). The personal models are the
engine's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.method import at_values
from fedprior.core.vectors import Vector
from fedprior.engine.engine import Engine
from fedprior.methods import make
from fedprior.reproduce.theorems.bounds import Conditions, local_error
from fedprior.reproduce.theorems.convex import Quadratic, Setting, quadratic
from fedprior.reproduce.theorems.rate import Table, Watch

MEANS = ("lg", "meg", "mh")


@dataclass(frozen=True)
class Strategy:
    """A mean with its meta-step on a quadratic setting; eta serves as eta_alpha, eta or both."""

    setting: Quadratic
    mean: str
    eta: float

    @cached_property
    def b(self) -> np.ndarray:
        """[N, D], mu_i(w) = c_i + b_i (w - c_i)."""
        h, k = self.setting.curvatures, self._k
        descend = self.eta * h if self.mean in ("lg", "mh") else 0.0
        recall = self.eta if self.mean in ("meg", "mh") else 0.0
        return np.asarray((1 - descend - recall) / (1 - recall * k))

    @property
    def _k(self) -> np.ndarray:
        return self.setting.lam / (self.setting.lam + self.setting.curvatures)

    @property
    def _e(self) -> np.ndarray:
        return self._k * self.setting.curvatures

    def _weighted(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray((weights * self.setting.centres).sum(0) / weights.sum(0))

    @cached_property
    def best(self) -> np.ndarray:
        """w*, the minimiser of F."""
        return self._weighted(self._e * self.b**2)

    @cached_property
    def limit(self) -> np.ndarray:
        """Where the method with first-order gradients comes to rest as alpha_m -> 0."""
        return self._weighted(self._e * self.b)

    def _farthest(self, factor: np.ndarray, w: np.ndarray) -> float:
        """max_i ||factor_i (w - c_i)||^2."""
        return float(((factor * (w - self.setting.centres)) ** 2).sum(1).max())

    @property
    def eta_gamma(self) -> float:
        """eta gamma_Phi, the largest eigenvalue of eta Hess Phi_i."""
        return float(np.abs(1 - self.b).max())

    @property
    def gap(self) -> float:
        """D_F(limit, w*)."""
        return float(0.5 * (self._e * self.b**2).mean(0) @ (self.limit - self.best) ** 2)

    @property
    def conditions(self) -> Conditions:
        """Theorem 1's constants with R = 1; sigma_Phi is 0, since Dmu is constant."""
        return Conditions(float((self._e * self.b**2).min()), self.setting.l_envelope, strain=1 + self.eta_gamma)

    def terms(self) -> dict[str, float]:
        """The theorem's bound on E ||theta_i - w*||^2 at the method's limit, term by term, with the proof's factor 4.

        Gradients of Phi and first-order errors are taken at the limit, where the proof uses them: over all of R^D they
        have no bound.
        """
        lam, at = self.setting.lam, self.conditions
        return {
            "16 sigma²/λ²": 16 / lam**2 * self._farthest(self._e * self.b**2, self.best),
            "2 (eta G)²": 2 * self._farthest(1 - self.b, self.limit),
            "8 eps_1²/λ²": 8 / lam**2 * self._farthest(self._e * self.b * (1 - self.b), self.limit),
            "c_p D_F": (32 / lam**2 * at.L_F + 8 / at.mu) * self.gap,
        }


class Personal:
    """The engine's personal models where the global model is held at a given point, on the quadratics.

    lam and all steps are data. ``exact``: exact proximal points; else R = 20 times K = 5 steps on batches of 2 of a
    client's 8 scattered samples.
    """

    def __init__(self, mean: str, *, exact: bool = True):
        setting = quadratic(noise=0.0 if exact else 1.0)
        solver = {"R": 1, "K": 2000, "tol": 1e-12} if exact else {"R": 20, "K": 5}
        memory = {"eta": 0.0} if mean in ("meg", "mh") else {}
        descent = {"eta_alpha": 0.0} if mean in ("lg", "mh") else {}
        steps = {"lam": 1.0, "alpha": 1.0, "alpha_m": 0.0, **memory, **descent}
        method = make("pfedbred", mean=mean, **steps, **solver)
        self.etas = (*memory, *descent)
        self.engine = Engine(
            setting.problem, method.algorithm(), setting.federation, batch_size=1 if exact else 2,
            at=lambda values: at_values(method, dict(values)).algorithm(),
        )  # fmt: skip

    def models(self, w: np.ndarray, lam: float, alpha: float, eta: float = 0.0, rounds: int = 60) -> np.ndarray:
        """theta_i after each round [rounds, N, D], starting from theta_i = m_i = w."""
        values = {"lam": lam, "alpha": alpha, "alpha_m": 0.0, **dict.fromkeys(self.etas, eta)}
        state = self.engine.init(0, {name: jnp.asarray(value, float) for name, value in values.items()})
        place, n = self.engine.placement, self.engine.federation.n_clients
        held = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(w), x.shape), state.clients)
        state = state._replace(
            server=jax.device_put(Vector(jnp.asarray(w)), place.same), clients=jax.device_put(held, place.split)
        )
        path = []
        for _ in range(rounds):
            state, _ = self.engine.step(state)
            path.append(np.array(state.clients.theta.tree)[:n])
        return np.array(path)


personal = lru_cache(Personal)  # compiled once


def farthest(models: np.ndarray, w: np.ndarray) -> float:
    """max_i ||theta_i - w||^2: the bound is on every client."""
    return float(((models - w) ** 2).sum(-1).max())


def radius(lams: Iterable[float], watch: Watch, eta: float = 0.05) -> Table:
    """The farthest personal model against lambda: identity mean, lg with ``eta``, and K = 5 steps on batches of 2."""
    watch("Theorem 2: lambda varies")
    exact, loose = personal("lg"), personal("identity", exact=False)
    table: Table = []
    for lam in lams:
        setting = quadratic(lam)
        plain, stepped, alpha = Strategy(setting, "lg", 0.0), Strategy(setting, "lg", eta), 1 / (lam + setting.l_f)
        rough = loose.models(plain.best, lam, alpha / 2, rounds=30)[5:]
        scattered = ((rough - plain.best) ** 2).sum(-1)  # [rounds, N]
        distance = scattered.mean(0).max()  # E over rounds, then the farthest client
        of_farthest = scattered[:, scattered.mean(0).argmax()]  # 100 steps forget the round before
        table.append(
            {
                "lambda": float(lam),
                "eta = 0": farthest(exact.models(plain.limit, lam, alpha, rounds=3)[-1], plain.best),
                "bound": sum(plain.terms().values()),
                "noisy": float(distance),
                "noisy ±95 %": float(1.96 * of_farthest.std(ddof=1) / np.sqrt(len(of_farthest))),
                f"eta = {eta:g}": farthest(exact.models(stepped.limit, lam, alpha, eta, 3)[-1], stepped.best),
                f"bound, eta = {eta:g}": sum(stepped.terms().values()),
            }
        )
    return table


def meta_steps(etas: Iterable[float], watch: Watch, means: Iterable[str], lam: float = 100.0) -> Table:
    """The farthest personal model against eta for each mean, beside the terms of the bound."""
    setting, etas = quadratic(lam), list(etas)
    table: Table = []
    for mean in means:
        watch(f"Theorem 2: eta varies, {mean}")
        for eta in etas:
            s = Strategy(setting, mean, eta)
            models = personal(mean).models(s.limit, lam, 1 / (lam + setting.l_f), eta, 3 if mean == "lg" else 60)
            terms = s.terms()
            table.append(
                {
                    "mean": mean,
                    "eta": float(eta),
                    "distance": farthest(models[-1], s.best),
                    "bound": sum(terms.values()),
                    **terms,
                }
            )
    return table


def limits(etas: Iterable[float], lam: float = 100.0) -> Table:
    """Where the method comes to rest, beside the ball that Theorem 1 gives it: 8 delta / mu_F with delta from gamma_Phi."""
    setting = quadratic(lam)
    table: Table = []
    for s in (Strategy(setting, mean, eta) for mean in MEANS for eta in etas):
        at, gamma = s.conditions, s.eta_gamma / s.eta
        table.append(
            {
                "mean": s.mean,
                "eta": float(s.eta),
                "gamma_Phi": gamma,
                "D_F(limit)": s.gap,
                "ball": 8 * local_error(at, gamma) / at.mu,
                "step bound": at.bound,
            }
        )
    return table


def deviation(setting: Setting, eta: float, pairs: int = 4000, reach: float = 3.0, seed: int = 0) -> float:
    """sigma_Phi of lg: the largest ratio of its assumption over random pairs, hence a lower bound on it.

    Half of the pairs are close together, half lie anywhere within ``reach`` standard deviations of w*.
    """
    x, y, start, size = (jnp.asarray(part) for part in setting.federation.train)
    per_client = int(size[0])

    def loss(i: Array, w: Array) -> Array:
        rows = start[i] + jnp.arange(per_client)
        return setting.problem.loss(Vector(w), Batch(x[rows], y[rows], jnp.ones(per_client)))

    def at(i: Array, w: Array) -> tuple[Array, Array]:
        jacobian = jnp.eye(len(w)) - eta * jax.hessian(loss, 1)(i, w)
        return jacobian, setting.slope(i, w - eta * jax.grad(loss, 1)(i, w))

    @jax.jit
    @jax.vmap
    def ratio(i: Array, w: Array, v: Array) -> Array:
        (jw, gw), (jv, gv) = at(i, w), at(i, v)
        size = jnp.maximum(jnp.linalg.norm(jw, 2), jnp.linalg.norm(jv, 2))
        slope = jnp.maximum(jnp.linalg.norm(gw), jnp.linalg.norm(gv))
        return jnp.linalg.norm(jw - jv, 2) * slope / (jnp.linalg.norm(gw - gv) * size)

    rng = np.random.default_rng(seed)
    w = setting.best + reach * rng.normal(size=(pairs, len(setting.best)))
    apart = np.where(np.arange(pairs) % 2, reach, 1e-3)[:, None] * rng.normal(size=w.shape)
    return float(ratio(jnp.asarray(rng.integers(setting.N, size=pairs)), jnp.asarray(w), jnp.asarray(w + apart)).max())
