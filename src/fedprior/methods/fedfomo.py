"""FedFomo: Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021.

From M models w_j of others, with the loss L_i on a fixed fifth of the client's training samples, and w_i- = w_i so far:
    W_ij = max(0, [L_i(w_i-) - L_i(w_j)] / |w_j - w_i-|),  scaled to sum to one (all zero: nothing is taken)
    w_i <- w_i- + sum_j W_ij (w_j - w_i-),  then R steps on the other four fifths
server: offers each client the models that served it best so far (P_ij, the sum of raw W_ij), now and then random ones
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from fedprior.method import Batch, Data, FedpriorError, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector, optimize, optimizer, put_rows, repeat, rows, weighted_mean


@dataclass(frozen=True)
class FedFomo(Method):
    """Clients weigh each other's models by how much they lower a validation loss; M = 0 is Local on four fifths.

    The held-out fifth is part of the method. Each of the M offers is, with probability eps (1 - decay)^t, a random client.

    >>> FedFomo(M=3).fraction
    0.2
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Zhang et al., ICLR 2021"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "alpha": "PRIOR, section 5",
        "M": "FedFomo's code",
        "fraction": "FedFomo's code",
        "eps": "FedFomo's code",
        "decay": "FedFomo's code",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"M": (2, 5, 10)}

    R: int = 20
    alpha: float = 0.01
    M: int = 5
    fraction: float = 0.2
    eps: float = 0.3
    decay: float = 0.05

    def rules(self) -> list[tuple[str, str, bool]]:
        """Counts and shares."""
        return [
            *super().rules(),
            ("M", "it counts models: a whole number of at least 0", self.M >= 0),
            ("fraction", "it must be above 0 and below 1", 0 < self.fraction < 1),
            ("eps", "it must be from 0 to 1", 0 <= self.eps <= 1),
            ("decay", "it must be from 0 to 1", 0 <= self.decay <= 1),
        ]

    def idle(self) -> list[str]:
        """M = 0 takes from nobody."""
        return [*super().idle(), *(["M = 0"] if self.M == 0 else [])]

    def client(self, w0: Vector, key: Array) -> Tree:
        """w_i."""
        return w0

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """Everyone's last upload, who has uploaded, how models served clients, and the rounds done."""
        if n_clients - 1 < self.M:
            raise FedpriorError(
                f"FedFomo: M = {self.M} models to choose from, but a client has {n_clients - 1} others; "
                f"valid: 0 to {n_clients - 1}"
            )
        return {
            "w": repeat(w0, n_clients),
            "seen": jnp.zeros((n_clients,), bool),
            "P": jnp.zeros((n_clients, n_clients)),
            "t": jnp.zeros((), jnp.int32),
        }

    def send(self, server: Tree, i: Array | None, key: Array) -> Tree:
        """M models and whose they are; a newcomer gets the mean of all models as its only candidate."""
        if i is None:
            mean = weighted_mean(server["w"], server["seen"] / jnp.maximum(jnp.sum(server["seen"]), 1))
            there = (jnp.arange(self.M) == 0) & jnp.any(server["seen"])
            return {"w": repeat(mean, self.M), "ids": jnp.full((self.M,), -1), "there": there}
        order, explore, pick = jax.random.split(key, 3)
        n = len(server["seen"])
        possible = server["seen"] & (jnp.arange(n) != i)
        noise = jax.random.uniform(order, (n,))  # ties are broken at random
        best = jnp.argsort(jnp.where(possible, -server["P"][i], jnp.inf) + 1e-6 * noise)[: self.M]
        drawn = jnp.argsort(jnp.where(possible, jax.random.uniform(pick, (n,)), 2.0))[: self.M]
        eps = self.eps * (1 - self.decay) ** server["t"]
        ids = jnp.where(jax.random.uniform(explore, (self.M,)) < eps, drawn, best)
        again = jnp.any(jnp.tril(ids[:, None] == ids[None, :], -1), axis=1)  # a model counts once
        return {"w": rows(server["w"], ids), "ids": ids, "there": possible[ids] & ~again}

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """Take from the others what helps on the held-out part, then R steps on the rest."""
        train, held = data.split(self.fraction)

        def loss(w: Vector) -> Array:
            def add(total: Array, batch: Batch) -> Array:
                return total + jnp.sum(batch.mask * problem.losses(w, batch))

            return held.fold(add, jnp.zeros(())) / held.size

        def gain(w: Vector) -> Array:
            return (before - loss(w)) / ((w - client).norm() + 1e-5)

        before = loss(client)
        raw = jnp.where(down["there"], jax.lax.map(gain, down["w"]), 0)
        helpful = jnp.maximum(raw, 0)
        W = helpful / jnp.where(jnp.sum(helpful) > 0, jnp.sum(helpful), 1)
        start = client + weighted_mean(jax.tree.map(lambda x, c: x - c, down["w"], client), W)
        w, _ = optimize(
            lambda w, pick: problem.grad(w, train.batch(pick)), start, train.draw(self.R), optimizer("sgd", self.alpha)
        )
        up = {"w": w, "ids": down["ids"], "gain": raw}
        return w, up, {"moved": (w - client).norm(), "helpful": jnp.sum(helpful > 0).astype(raw.dtype)}

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """Store the uploads and how the offers served."""
        return {
            "w": put_rows(server["w"], ids, ups["w"]),
            "seen": server["seen"].at[ids].set(True),
            "P": server["P"].at[ids[:, None], ups["ids"]].add(ups["gain"]),
            "t": server["t"] + 1,
        }

    def global_model(self, server: Tree) -> None:
        """There is none."""
        return None

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """w_i."""
        return single(client)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer takes from the mean model what helps, and trains for one round."""
        return self.local(problem, problem.init(key), down, data, key)[0]
