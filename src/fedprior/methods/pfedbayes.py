"""pFedBayes: Zhang et al., "Personalized Federated Learning via Variational Bayesian Inference", ICML 2022.

q = N(m, sigma^2) over weights, sigma = softplus(rho). R times, on one batch B each, with w_eps = m_i + sigma_i eps:
    q_i <- K steps on  sum_B loss(w_eps) + (zeta / R) KL(q_i || q_w)        (q_w the client's copy of the server's)
    q_w <- one step on (zeta / R) KL(q_i || q_w)
server: (m, rho) <- sum_i p_i (m, rho)_i of the q_w
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import OPTIMIZERS, make_optimizer
from fedprior.core.problem import Problem
from fedprior.core.random import noise
from fedprior.core.vectors import Tree, Vector, polynomial

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


class Gaussian(NamedTuple):
    """q = N(m, softplus(rho)^2), entry by entry."""

    m: Vector
    rho: Vector


Memory = tuple[optax.OptState, optax.OptState]  # of the optimizers of q_i and of q_w


class Client(NamedTuple):
    """q_i, and the optimizers' memory where it is kept."""

    q: Gaussian
    memory: Memory | None


class PFedBayes(Method):
    """A Gaussian over every weight, per client, tied to the server's by a divergence.

    ``noise``: the standard deviation of eps (the public code's 0.001 makes it nearly deterministic). ``samples``: the
    personal model is a mixture of this many draws of weights; 0: the mean weights. ``keep``: the optimizers' memory goes on
    across rounds. Means start at the model's own initial weights.

    >>> PFedBayes().K
    5
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Zhang et al., ICML 2022"
    cites: ClassVar[str] = "zhang2022pfedbayes"
    objective: ClassVar[str] = (
        r"\min_{q_i} \mathbb{E}_{w \sim q_i} \bigl[n_i f_i(w)\bigr] + \zeta\, \mathrm{KL}(q_i \,\|\, q_w), "
        r"\qquad q_w = \arg\min_q \sum_i p_i\, \mathrm{KL}(q_i \,\|\, q)"
    )
    wrapper_defaults: ClassVar[Mapping[str, Any]] = {"fine_tune_step": 0.01}  # plain steps: alpha is Adam's

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning="batches that a client trains on in a round")
    K: int = hyper(5, "pFedBayes's public code", least=1, meaning="steps of the personal distribution on each batch")
    alpha: float = hyper(
        1e-3, "pFedBayes's public code", least=0, inert=0, meaning="step size of the personal distribution"
    )
    alpha_m: float = hyper(
        1e-3,
        "pFedBayes's public code",
        least=0,
        inert=0,
        meaning="step size of the client's copy of the server's distribution",
    )
    zeta: float = hyper(
        10.0,
        "pFedBayes's public code",
        sweep=(0.1, 1.0, 10.0),
        least=0,
        inert=0,
        meaning="how strongly the personal distribution is tied to the server's",
    )
    # eps is read back from m + sigma eps: below about -15 single precision rounds it away there, beside means of size 1
    rho: float = hyper(
        -3.0,
        "pFedBayes's public code: -3",
        sweep=(-3.0, -5.0),
        least=-20,
        meaning="spread of the weights at the start: their deviation is softplus(rho)",
    )
    noise: float = hyper(
        1.0,
        "the paper: 1; the public code: 0.001",
        least=0,
        meaning="deviation of the noise with which weights are drawn, in training and for the personal model",
    )
    samples: int = hyper(
        1,
        "the paper: one draw",
        least=0,
        meaning="draws of weights that the personal model averages over; 0: the mean weights",
    )
    optimizer: str = hyper(
        "adam", "pFedBayes's public code", choices=OPTIMIZERS, meaning="which optimizer takes the steps"
    )
    keep: bool = hyper(
        False, "the memory is started afresh each round", meaning="whether the optimizers' memory goes on across rounds"
    )

    def _start(self, w0: Vector) -> Gaussian:
        return Gaussian(w0, w0.map(lambda x: jnp.full_like(x, self.rho)))

    @property
    def _optimizers(self) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
        return make_optimizer(self.optimizer, self.alpha), make_optimizer(self.optimizer, self.alpha_m)

    def _memory(self, q: Gaussian) -> Memory:
        own, shared = self._optimizers
        return own.init(q), shared.init(q)

    def _client(self, q: Gaussian) -> Client:
        return Client(q, self._memory(q) if self.keep else None)

    def client(self, w0: Vector, key: Array) -> Client:
        return self._client(self._start(w0))

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Gaussian:
        return self._start(w0)

    def local(
        self, problem: Problem, client: Client, down: Gaussian, data: Data, key: Array
    ) -> tuple[Client, Gaussian, Info]:
        """R times: K steps on q_i, one on the client's copy of the server's q."""
        own, shared = self._optimizers
        tie = self.zeta / self.R

        def iterate(carry: Tree, step: tuple[Array, Array]) -> tuple[Tree, None]:
            (q, q_w), (memory, memory_w) = carry
            batch = data.batch(step[0])
            count = jnp.sum(batch.mask)

            sigma_w, rise_w = deviation(q_w.rho)
            precision = sigma_w.map(lambda s: 1 / s**2)

            def descend(k: Array, carry: tuple[Gaussian, optax.OptState]) -> tuple[Gaussian, optax.OptState]:
                q, memory = carry
                sigma, rise = deviation(q.rho)
                eps = self.noise * noise(jax.random.fold_in(step[1], k), sigma)
                drawn = lax.optimization_barrier(q.m + sigma * eps)
                g = count * problem.grad(drawn, batch)
                eps = (drawn - q.m) / sigma  # read back: cheaper than to draw it again, as the compiler would
                slope = Gaussian(  # of the loss, and of the divergence in closed form
                    m=g + tie * precision * (q.m - q_w.m),
                    rho=(g * eps + tie * (precision * sigma - sigma.map(jnp.reciprocal))) * rise,
                )
                update, memory = own.update(slope, memory, q)
                return optax.apply_updates(q, update), memory

            q, memory = lax.fori_loop(0, self.K, descend, (q, memory))
            sigma, away = deviation(q.rho)[0], q.m - q_w.m
            excess = -precision * (sigma * sigma + away * away) + 1.0
            slope = Gaussian(-tie * precision * away, tie * excess / sigma_w * rise_w)  # of the divergence in q_w
            update, memory_w = shared.update(slope, memory_w, q_w)
            return ((q, optax.apply_updates(q_w, update)), (memory, memory_w)), None

        start = ((client.q, down), client.memory if self.keep else self._memory(client.q))
        ((q, q_w), memory), _ = lax.scan(iterate, start, (data.draw(self.R), jax.random.split(key, self.R)))
        info = {"moved": (q_w.m - down.m).norm(), "personal": (q.m - q_w.m).norm()}
        return Client(q, memory if self.keep else None), q_w, info

    def global_model(self, server: Gaussian) -> Vector:
        """The mean weights m."""
        return server.m

    def with_global_model(self, server: Gaussian, w: Vector) -> Gaussian:
        """Replaces m alone: server relaxation leaves rho the clients' mean."""
        return server._replace(m=w)

    def personal_model(self, problem: Problem, client: Client, down: Gaussian, data: Data, key: Array) -> Mixture:
        """Draws from q_i, or its mean."""
        if self.samples == 0:
            return single(client.q.m)
        m, sigma = client.q.m, deviation(client.q.rho)[0]
        draws = lax.map(lambda k: m + self.noise * sigma * noise(k, m), jax.random.split(key, self.samples))
        return jnp.full((self.samples,), 1 / self.samples), draws

    def join(self, problem: Problem, down: Gaussian, data: Data, key: Array) -> Client:
        """A newcomer fits q to the received one: one round of its own."""
        return self.local(problem, self._client(down), down, data, key)[0]
