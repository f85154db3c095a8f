"""FedFomo: Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021.

A client holds w_i, trained in its last round, and w_i-, what it held before that training. L_i is the loss on a fixed fifth
of its training samples. From the models w_j, last round's uploads that the server offers and its own w_i:
    W_ij = max(0, [L_i(w_i-) - L_i(w_j)] / |w_j - w_i-|_1),  scaled to sum to one
    w_i- <- w_i- + sum_j W_ij (w_j - w_i-)      (no gain at all: the last training is thrown back)
    w_i <- w_i- after R steps on the other four fifths
server: offers each client the models that served it best so far (P_ij, the sum of gains over |their sum|), now and then
random ones
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.batch import Batch, Data
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector, put_rows, repeat, rows, weighted_mean
from fedprior.errors import FedpriorError


class Client(NamedTuple):
    """The trained model, and the one before that training."""

    w: Vector
    before: Vector


class Server(NamedTuple):
    """What the server knows of all clients."""

    w: Vector  # [N, ...] everyone's last upload
    there: Array  # [N] who uploaded in the last round
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
    """Clients weigh each other's models by how much they lower a validation loss.

    The held-out fifth is part of the method; a client with a single sample has nothing else, and only takes from others.
    Each of the M offers is, with probability max(0, eps - decay t), a random client.

    >>> FedFomo(M=3).fraction
    0.2
    """

    weighted: ClassVar[bool] = False
    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Zhang et al., ICLR 2021"
    cites: ClassVar[str] = "zhang2021fedfomo"
    objective: ClassVar[str] = (
        r"w_i \leftarrow w_i^- + \sum_j W_{ij} (w_j - w_i^-), "
        r"\quad W_{ij} \propto \max\Bigl(0, \frac{L_i(w_i^-) - L_i(w_j)}{\|w_j - w_i^-\|_1}\Bigr)"
    )
    revision: ClassVar[int] = 2  # 2: measured from the model before training, as the authors' code does

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(0.01, "PRIOR, section 6", least=0, inert=0, meaning=STEP_SIZE)
    M: int = hyper(
        8,
        "FedFomo's code; its README: 4 and 9",
        sweep=(2, 8, 16),
        least=0,
        inert=0,
        meaning="models of others that the server offers a client in a round",
    )
    fraction: float = hyper(
        0.2,
        "FedFomo's README",
        above=0,
        below=1,
        meaning="part of the training samples on which offered models are judged",
    )
    eps: float = hyper(
        0.3,
        "FedFomo's code",
        least=0,
        most=1,
        meaning="probability at first that an offered model is a random client's",
    )
    decay: float = hyper(
        0.05, "FedFomo's code", least=0, most=1, meaning="how much less that probability is after each round"
    )

    def client(self, w0: Vector, key: Array) -> Client:
        return Client(w0, w0)

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        if n_clients - 1 < self.M:
            raise FedpriorError(
                f"FedFomo: M = {self.M} models to choose from, but a client has {n_clients - 1} others; "
                f"valid: 0 to {n_clients - 1}"
            )
        return Server(
            w=repeat(w0, n_clients),
            there=jnp.zeros((n_clients,), bool),
            P=jnp.zeros((n_clients, n_clients)),
            t=jnp.zeros((), jnp.int32),
        )

    def send(self, outbox: Server, i: Array | None, key: Array) -> Offers:
        """M models and whose they are; a newcomer gets the mean of last round's as its only candidate."""
        if i is None:
            mean = weighted_mean(outbox.w, outbox.there / jnp.maximum(jnp.sum(outbox.there), 1))
            there = (jnp.arange(self.M) == 0) & jnp.any(outbox.there)
            return Offers(repeat(mean, self.M), ids=jnp.full((self.M,), -1), there=there)
        order, explore, pick = jax.random.split(key, 3)
        n = len(outbox.there)
        possible = outbox.there & (jnp.arange(n) != i)
        noise = jax.random.uniform(order, (n,))  # ties are broken at random
        best = jnp.argsort(jnp.where(possible, -outbox.P[i], jnp.inf) + 1e-6 * noise)[: self.M]
        drawn = jnp.argsort(jnp.where(possible, jax.random.uniform(pick, (n,)), 2.0))[: self.M]
        eps = jnp.maximum(self.eps - self.decay * outbox.t, 0)
        ids = jnp.where(jax.random.uniform(explore, (self.M,)) < eps, drawn, best)
        again = jnp.any(jnp.tril(ids[:, None] == ids[None, :], -1), axis=1)  # a model counts once
        return Offers(rows(outbox.w, ids), ids=ids, there=possible[ids] & ~again)

    def local(
        self, problem: Problem, client: Client, down: Offers, data: Data, key: Array
    ) -> tuple[Client, Upload, Info]:
        """Take what helps on the held-out part, then R steps on the rest."""
        train, held = data.split(self.fraction)
        before = client.before

        def loss(w: Vector) -> Array:
            def add(total: Array, batch: Batch) -> Array:
                return total + jnp.sum(batch.mask * problem.losses(w, batch))

            return held.fold(add, jnp.zeros(())) / jnp.maximum(held.size, 1)

        def gain(w: Vector) -> Array:
            distance = sum(jnp.sum(jnp.abs(x)) for x in jax.tree.leaves(w - before))
            return jnp.where(distance > 0, (at_before - loss(w)) / jnp.where(distance > 0, distance, 1), 0)

        at_before = loss(before)
        candidates = jax.tree.map(lambda x, own: jnp.concatenate([x, own[None]]), down.w, client.w)
        raw = jnp.where(jnp.append(down.there, True), lax.map(gain, candidates), 0)
        helpful = jnp.maximum(raw, 0)
        W = helpful / jnp.where(jnp.sum(helpful) > 0, jnp.sum(helpful), 1)
        start = before + weighted_mean(jax.tree.map(lambda x, b: x - b, candidates, before), W)
        w, _ = local_steps(problem.grad, start, train, self.R, self.alpha)
        total = jnp.abs(jnp.sum(raw))
        info = {"moved": (w - start).norm(), "helpful": jnp.sum(helpful[:-1] > 0).astype(raw.dtype)}
        return Client(w, start), Upload(w, down.ids, raw[:-1] / jnp.where(total > 0, total, 1)), info

    def merge(self, server: Server, ups: Upload, weights: Array, ids: Array, key: Array) -> Server:
        """Store the uploads and how the offers served."""
        return Server(
            w=put_rows(server.w, ids, ups.w),
            there=jnp.zeros_like(server.there).at[ids].set(True),
            P=server.P.at[ids[:, None], ups.ids].add(ups.gain),
            t=server.t + 1,
        )

    def personal_model(self, problem: Problem, client: Client, down: Offers, data: Data, key: Array) -> Mixture:
        """w_i."""
        return single(client.w)

    def join(self, problem: Problem, down: Offers, data: Data, key: Array) -> Client:
        """A newcomer takes from the mean model what helps, and trains for one round."""
        return self.local(problem, self.client(problem.init(key), key), down, data, key)[0]
