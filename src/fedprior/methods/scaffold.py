"""SCAFFOLD: Karimireddy et al., "Stochastic Controlled Averaging for Federated Learning", ICML 2020 (option II).

client:  y <- y - alpha [grad f_i(y; B) - c_i + c],  R times from the received w
         c_i+ = c_i - c + (w - y) / (R alpha)
server:  w <- w + eta_g mean_S (y_i - w);    c <- c + (|S| / N) mean_S (c_i+ - c_i)
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector, weighted_mean


class Server(NamedTuple):
    """The model, the mean of all clients' control variates, and the number of clients."""

    w: Vector
    c: Vector
    N: Array


class Message(NamedTuple):
    """To a client, w and c; from a client, y - w and c_i+ - c_i."""

    w: Vector
    c: Vector


class Scaffold(Method):
    """Control variates c_i and c correct the drift of clients; c is the mean of all c_i, always.

    Only sampled clients train: a client whose change is not merged must not change its c_i.

    >>> Scaffold().participation
    ('sampled',)
    """

    weighted: ClassVar[bool] = False
    participation: ClassVar[tuple[str, ...]] = ("sampled",)
    paper: ClassVar[str] = "Karimireddy et al., ICML 2020"
    no_return: ClassVar[str] = (
        "the lost c_i would stay in c, which is the mean of all c_i, and mislead everyone's steps to the end of the run"
    )
    cites: ClassVar[str] = "karimireddy2020scaffold"
    objective: ClassVar[str] = (
        r"\min_w \frac{1}{N} \sum_i f_i(w), \quad \text{local steps along } \nabla f_i(y) - c_i + c"
    )

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(
        0.01, "PRIOR, section 6", sweep=(0.003, 0.01, 0.03), above=0, meaning=STEP_SIZE
    )  # c_i divides by it
    eta_g: float = hyper(
        1.0,
        "SCAFFOLD, section 7: 1",
        above=0,
        meaning="how far the server goes towards the mean of the clients' models",
    )

    def client(self, w0: Vector, key: Array) -> Vector:
        """c_i = 0."""
        return w0.map(jnp.zeros_like)

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        return Server(w=w0, c=w0.map(jnp.zeros_like), N=jnp.asarray(float(n_clients)))

    def send(self, outbox: Server, i: Array | None, key: Array) -> Message:
        return Message(outbox.w, outbox.c)

    def local(
        self, problem: Problem, client: Vector, down: Message, data: Data, key: Array
    ) -> tuple[Vector, Message, Info]:
        """R corrected steps; upload the change of the model and of c_i."""
        w, c = down
        correction = c - client

        def step(y: Vector, pick: Array) -> tuple[Vector, None]:
            return y - self.alpha * (problem.grad(y, data.batch(pick)) + correction), None

        y, _ = lax.scan(step, w, data.draw(self.R))
        change = (w - y) / (self.R * self.alpha) - c  # of c_i; as c_i+ - c_i it would make the compiler copy all states
        return client + change, Message(y - w, change), {"moved": (y - w).norm(), "correction": correction.norm()}

    def merge(self, server: Server, ups: Message, weights: Array, ids: Array, key: Array) -> Server:
        """Both means are plain, as in the paper; that of c counts the clients that did not take part."""
        mean = weighted_mean(ups, jnp.full_like(weights, 1 / len(weights)))
        share = len(weights) / server.N
        return Server(w=server.w + self.eta_g * mean.w, c=server.c + share * mean.c, N=server.N)

    def global_model(self, server: Server) -> Vector:
        return server.w

    def with_global_model(self, server: Server, w: Vector) -> Server:
        return server._replace(w=w)

    def personal_model(self, problem: Problem, client: Vector, down: Message, data: Data, key: Array) -> Mixture:
        """The received w."""
        return single(down.w)

    def join(self, problem: Problem, down: Message, data: Data, key: Array) -> Vector:
        """A newcomer just receives; its c_i is 0."""
        return down.w.map(jnp.zeros_like)
