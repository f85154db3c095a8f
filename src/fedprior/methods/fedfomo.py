"""FedFomo: Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021.

From M models w_j of others, with the loss L_i on a fixed fifth of the client's training samples, and w_i- = w_i so far:
    W_ij = max(0, [L_i(w_i-) - L_i(w_j)] / |w_j - w_i-|),  scaled to sum to one (all zero: nothing is taken)
    w_i <- w_i- + sum_j W_ij (w_j - w_i-),  then R steps on the other four fifths
server: offers each client the models that served it best so far (P_ij, the sum of raw W_ij), now and then random ones
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedprior.core.batch import Batch, Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector, put_rows, repeat, rows, weighted_mean
from fedprior.errors import FedpriorError


class Server(NamedTuple):
    """What the server knows of all clients."""

    w: Vector  # [N, ...] everyone's last upload
    seen: Array  # [N] who has uploaded
    P: Array  # [N, N] how models served clients, added up
    t: Array  # rounds done


class Offers(NamedTuple):
    """M models, whose they are, and which of them count."""

    w: Vector  # [M, ...]
    ids: Array  # [M]
    there: Array  # [M]


class Upload(NamedTuple):
    """The client's model, and how the offered ones served it."""

    w: Vector
    ids: Array  # [M]
    gain: Array  # [M]


class FedFomo(Method):
    """Clients weigh each other's models by how much they lower a validation loss; M = 0 is Local on four fifths.

    The held-out fifth is part of the method. Each of the M offers is, with probability eps (1 - decay)^t, a random client.

    >>> FedFomo(M=3).fraction
    0.2
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Zhang et al., ICLR 2021"

    R: int = hyper(20, "PRIOR, section 5", least=1)
    alpha: float = hyper(0.01, "PRIOR, section 5", least=0, inert=0)
    M: int = hyper(5, "FedFomo's code", sweep=(2, 5, 10), least=0, inert=0)
    fraction: float = hyper(0.2, "FedFomo's code", above=0, below=1)
    eps: float = hyper(0.3, "FedFomo's code", least=0, most=1)
    decay: float = hyper(0.05, "FedFomo's code", least=0, most=1)

    def client(self, w0: Vector, key: Array) -> Vector:
        """w_i."""
        return w0

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        if n_clients - 1 < self.M:
            raise FedpriorError(
                f"FedFomo: M = {self.M} models to choose from, but a client has {n_clients - 1} others; "
                f"valid: 0 to {n_clients - 1}"
            )
        return Server(
            w=repeat(w0, n_clients),
            seen=jnp.zeros((n_clients,), bool),
            P=jnp.zeros((n_clients, n_clients)),
            t=jnp.zeros((), jnp.int32),
        )

    def send(self, outbox: Server, i: Array | None, key: Array) -> Offers:
        """M models and whose they are; a newcomer gets the mean of all models as its only candidate."""
        if i is None:
            mean = weighted_mean(outbox.w, outbox.seen / jnp.maximum(jnp.sum(outbox.seen), 1))
            there = (jnp.arange(self.M) == 0) & jnp.any(outbox.seen)
            return Offers(repeat(mean, self.M), ids=jnp.full((self.M,), -1), there=there)
        order, explore, pick = jax.random.split(key, 3)
        n = len(outbox.seen)
        possible = outbox.seen & (jnp.arange(n) != i)
        noise = jax.random.uniform(order, (n,))  # ties are broken at random
        best = jnp.argsort(jnp.where(possible, -outbox.P[i], jnp.inf) + 1e-6 * noise)[: self.M]
        drawn = jnp.argsort(jnp.where(possible, jax.random.uniform(pick, (n,)), 2.0))[: self.M]
        eps = self.eps * (1 - self.decay) ** outbox.t
        ids = jnp.where(jax.random.uniform(explore, (self.M,)) < eps, drawn, best)
        again = jnp.any(jnp.tril(ids[:, None] == ids[None, :], -1), axis=1)  # a model counts once
        return Offers(rows(outbox.w, ids), ids=ids, there=possible[ids] & ~again)

    def local(
        self, problem: Problem, client: Vector, down: Offers, data: Data, key: Array
    ) -> tuple[Vector, Upload, Info]:
        """Take from the others what helps on the held-out part, then R steps on the rest."""
        train, held = data.split(self.fraction)

        def loss(w: Vector) -> Array:
            def add(total: Array, batch: Batch) -> Array:
                return total + jnp.sum(batch.mask * problem.losses(w, batch))

            return held.fold(add, jnp.zeros(())) / held.size

        def gain(w: Vector) -> Array:
            return (before - loss(w)) / ((w - client).norm() + 1e-5)

        before = loss(client)
        raw = jnp.where(down.there, jax.lax.map(gain, down.w), 0)
        helpful = jnp.maximum(raw, 0)
        W = helpful / jnp.where(jnp.sum(helpful) > 0, jnp.sum(helpful), 1)
        start = client + weighted_mean(jax.tree.map(lambda x, c: x - c, down.w, client), W)
        w, _ = local_steps(problem.grad, start, train, self.R, self.alpha)
        info = {"moved": (w - client).norm(), "helpful": jnp.sum(helpful > 0).astype(raw.dtype)}
        return w, Upload(w, down.ids, raw), info

    def merge(self, server: Server, ups: Upload, weights: Array, ids: Array, key: Array) -> Server:
        """Store the uploads and how the offers served."""
        return Server(
            w=put_rows(server.w, ids, ups.w),
            seen=server.seen.at[ids].set(True),
            P=server.P.at[ids[:, None], ups.ids].add(ups.gain),
            t=server.t + 1,
        )

    def personal_model(self, problem: Problem, client: Vector, down: Offers, data: Data, key: Array) -> Mixture:
        """w_i."""
        return single(client)

    def join(self, problem: Problem, down: Offers, data: Data, key: Array) -> Vector:
        """A newcomer takes from the mean model what helps, and trains for one round."""
        return self.local(problem, problem.init(key), down, data, key)[0]
