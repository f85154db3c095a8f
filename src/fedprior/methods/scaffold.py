"""SCAFFOLD: Karimireddy et al., "Stochastic Controlled Averaging for Federated Learning", ICML 2020 (option II).

y <- y - alpha [grad f_i(y; B) - c_i + c],  R times from the received w
c_i+ = c_i - c + (w - y) / (R alpha)
w <- w + eta_g mean_S (y_i - w);    c <- c + (|S| / N) mean_S (c_i+ - c_i)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector, weighted_mean


@dataclass(frozen=True)
class Scaffold(Method):
    """Control variates c_i and c correct the drift of clients; c is the mean of all c_i, always.

    Only sampled clients train: a client whose change is not merged must not change its c_i.

    >>> Scaffold().participation
    ('sampled',)
    """

    participation: ClassVar[tuple[str, ...]] = ("sampled",)
    paper: ClassVar[str] = "Karimireddy et al., ICML 2020"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "alpha": "PRIOR, section 5",
        "eta_g": "SCAFFOLD, section 7: 1",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"alpha": (0.003, 0.01, 0.03)}

    R: int = 20
    alpha: float = 0.01
    eta_g: float = 1.0

    def rules(self) -> list[tuple[str, str, bool]]:
        """c_i divides by the step, and a server that does not move learns nothing."""
        above = "it must be a finite number above 0"
        return [
            *super().rules(),
            ("alpha", above, 0 < self.alpha < float("inf")),
            ("eta_g", above, 0 < self.eta_g < float("inf")),
        ]

    def client(self, w0: Vector, key: Array) -> Tree:
        """c_i = 0."""
        return w0.map(jnp.zeros_like)

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """w, c = 0, and N."""
        return {"w": w0, "c": w0.map(jnp.zeros_like), "N": jnp.asarray(float(n_clients))}

    def send(self, server: Tree, i: Array | None, key: Array) -> Tree:
        """w and c."""
        return {"w": server["w"], "c": server["c"]}

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R corrected steps; upload the change of the model and of c_i."""
        w, c = down["w"], down["c"]
        correction = c - client

        def step(y: Vector, pick: Array) -> tuple[Vector, None]:
            return y - self.alpha * (problem.grad(y, data.batch(pick)) + correction), None

        y, _ = lax.scan(step, w, data.draw(self.R))
        change = (w - y) / (self.R * self.alpha) - c  # of c_i; as c_i+ - c_i it would make the compiler copy all states
        return client + change, {"w": y - w, "c": change}, {"moved": (y - w).norm(), "correction": correction.norm()}

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """Both means are plain, as in the paper; that of c counts the clients that did not take part."""
        mean = weighted_mean(ups, jnp.full_like(weights, 1 / len(weights)))
        share = len(weights) / server["N"]
        return {
            "w": server["w"] + self.eta_g * mean["w"],
            "c": server["c"] + share * mean["c"],
            "N": server["N"],
        }

    def global_model(self, server: Tree) -> Vector:
        """w."""
        return server["w"]

    def with_global_model(self, server: Tree, w: Vector) -> Tree:
        """Replace w."""
        return {**server, "w": w}

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """The received w."""
        return single(down["w"])

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer just receives; its c_i is 0."""
        return down["w"].map(jnp.zeros_like)
