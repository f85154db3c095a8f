"""pFedBayes: Zhang et al., "Personalized Federated Learning via Variational Bayesian Inference", ICML 2022.

q = N(m, sigma^2) over weights, sigma = softplus(rho). R times, on one batch B each, with w_eps = m_i + sigma_i eps:
    q_i <- K steps on  sum_B loss(w_eps) + (zeta / R) KL(q_i || q_w)        (q_w the client's copy of the server's)
    q_w <- one step on (zeta / R) KL(q_i || q_w)
server: (m, rho) <- sum_i p_i (m, rho)_i of the q_w
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector, noise, optimizer, polynomial

# log(1 + e) / e on [0, 1], to 1e-8: a third of the time of the compiler's log1p
LOG1P = (
    *(1.0, -0.49999893, 0.3332971, -0.24951616, 0.19663274),
    *(-0.15269667, 0.10543624, -0.05637361, 0.01954253, -0.00317606),
)


def deviation(rho: Vector) -> tuple[Vector, Vector]:
    """sigma = softplus(rho) = max(rho, 0) + log(1 + e), e = exp(-|rho|), and its slope."""
    e = lax.optimization_barrier(rho.map(lambda r: jnp.exp(-jnp.abs(r))))
    sigma = rho.map(lambda r, e: jnp.maximum(r, 0) + e * polynomial(LOG1P, e), e)
    return sigma, rho.map(lambda r, e: jnp.where(r > 0, 1.0, e) / (1 + e), e)


@dataclass(frozen=True)
class PFedBayes(Method):
    """A Gaussian over every weight, per client, tied to the server's by a divergence.

    ``noise``: the standard deviation of eps (the public code's 0.001 makes it nearly deterministic). ``samples``: the
    personal model is a mixture of so many draws of weights; 0: the mean weights. ``keep``: the optimizers' memory goes on
    across rounds. Means start at the model's own initial weights.

    >>> PFedBayes().K
    5
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Zhang et al., ICML 2022"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "K": "pFedBayes's public code",
        "alpha": "pFedBayes's public code",
        "alpha_m": "pFedBayes's public code",
        "zeta": "pFedBayes's public code",
        "rho": "pFedBayes's public code: -3",
        "noise": "the paper: 1; the public code: 0.001",
        "samples": "the paper: one draw",
        "optimizer": "pFedBayes's public code",
        "keep": "the memory is started afresh each round",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"zeta": (0.1, 1.0, 10.0), "rho": (-3.0, -5.0)}

    R: int = 20
    K: int = 5
    alpha: float = 1e-3
    alpha_m: float = 1e-3
    zeta: float = 10.0
    rho: float = -3.0
    noise: float = 1.0
    samples: int = 1
    optimizer: str = "adam"
    keep: bool = False

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules, and variances that single precision can divide by."""
        finite = float("inf")
        return [
            *super().rules(),
            ("zeta", "it must be a finite number of at least 0", 0 <= self.zeta < finite),
            (
                "rho",
                "it must be a finite number of at least -20: below, the variance softplus(rho)^2 vanishes",
                -20 <= self.rho < finite,
            ),
            ("noise", "it is a standard deviation: a finite number of at least 0", 0 <= self.noise < finite),
            ("samples", "it counts draws: a whole number of at least 0", self.samples >= 0),
        ]

    def idle(self) -> list[str]:
        """zeta = 0 unties a client from the server."""
        return [*super().idle(), *(["zeta = 0"] if self.zeta == 0 else [])]

    def _start(self, w0: Vector) -> Tree:
        return {"m": w0, "rho": w0.map(lambda x: jnp.full_like(x, self.rho))}

    def client(self, w0: Vector, key: Array) -> Tree:
        """q_i, and the optimizers' memory where it is kept."""
        q = self._start(w0)
        return {"q": q, "memory": self._memory(q) if self.keep else None}

    def _memory(self, q: Tree) -> Tree:
        return (optimizer(self.optimizer, self.alpha).init(q), optimizer(self.optimizer, self.alpha_m).init(q))

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """(m, rho)."""
        return self._start(w0)

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R times: K steps on q_i, one on the client's copy of the server's q."""
        own, shared = (optimizer(self.optimizer, alpha) for alpha in (self.alpha, self.alpha_m))
        tie = self.zeta / self.R

        def iterate(carry: Tree, step: tuple[Array, Array]) -> tuple[Tree, None]:
            (q, q_w), (memory, memory_w) = carry
            batch = data.batch(step[0])
            count = jnp.sum(batch.mask)

            sigma_w, rise_w = deviation(q_w["rho"])
            precision = sigma_w.map(lambda s: 1 / s**2)

            def descend(k: Array, carry: tuple[Tree, optax.OptState]) -> tuple[Tree, optax.OptState]:
                q, memory = carry
                sigma, rise = deviation(q["rho"])
                eps = self.noise * noise(jax.random.fold_in(step[1], k), sigma)
                drawn = lax.optimization_barrier(q["m"] + sigma * eps)
                g = count * problem.grad(drawn, batch)
                eps = (drawn - q["m"]) / sigma  # read back: cheaper than to draw it again, as the compiler would
                slope = {  # of the loss, and of the divergence in closed form
                    "m": g + tie * precision * (q["m"] - q_w["m"]),
                    "rho": (g * eps + tie * (precision * sigma - sigma.map(jnp.reciprocal))) * rise,
                }
                update, memory = own.update(slope, memory, q)
                return optax.apply_updates(q, update), memory

            q, memory = lax.fori_loop(0, self.K, descend, (q, memory))
            sigma, away = deviation(q["rho"])[0], q["m"] - q_w["m"]
            excess = -precision * (sigma * sigma + away * away) + 1.0
            slope = {"m": -tie * precision * away, "rho": tie * excess / sigma_w * rise_w}  # of the divergence in q_w
            update, memory_w = shared.update(slope, memory_w, q_w)
            return ((q, optax.apply_updates(q_w, update)), (memory, memory_w)), None

        memory = client["memory"] if self.keep else self._memory(client["q"])
        start = ((client["q"], down), memory)
        ((q, q_w), memory), _ = lax.scan(iterate, start, (data.draw(self.R), jax.random.split(key, self.R)))
        info = {"moved": (q_w["m"] - down["m"]).norm(), "personal": (q["m"] - q_w["m"]).norm()}
        return {"q": q, "memory": memory if self.keep else None}, q_w, info

    def global_model(self, server: Tree) -> Vector:
        """The mean weights m."""
        return server["m"]

    def with_global_model(self, server: Tree, w: Vector) -> Tree:
        """Replace m."""
        return {**server, "m": w}

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """Draws from q_i, or its mean."""
        if self.samples == 0:
            return single(client["q"]["m"])
        m, sigma = client["q"]["m"], deviation(client["q"]["rho"])[0]
        draws = lax.map(lambda k: m + self.noise * sigma * noise(k, m), jax.random.split(key, self.samples))
        return jnp.full((self.samples,), 1 / self.samples), draws

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer fits q to the received one: one round of its own."""
        start = {"q": down, "memory": self._memory(down) if self.keep else None}
        return self.local(problem, start, down, data, key)[0]
