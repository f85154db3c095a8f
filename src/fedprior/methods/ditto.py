"""Ditto: Li et al., "Fair and Robust Federated Learning Through Personalization", ICML 2021.

R times, on one batch B each:   v_i <- v_i - alpha [grad f_i(v_i; B) + lam (v_i - w)]    (w as received)
                                w_i <- w_i - alpha grad f_i(w_i; B)
server:                         w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector


@dataclass(frozen=True)
class Ditto(Method):
    """FedAvg for w, and beside it a personal v_i pulled towards the received w; lam = 0 is Local.

    Ditto's lam is of order 1; pFedMe's 15 to 60 would make v_i nearly w.

    >>> Ditto().lam
    1.0
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Li et al., ICML 2021"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "alpha": "PRIOR, section 5",
        "lam": "Ditto's code: 1, among 0.1, 1, 2",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"lam": (0.1, 1.0, 2.0)}

    R: int = 20
    alpha: float = 0.01
    lam: float = 1.0

    def client(self, w0: Vector, key: Array) -> Tree:
        """v_i."""
        return w0

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R steps of both models on the same batches."""

        def step(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            v, w = carry
            batch = data.batch(pick)
            v = v - self.alpha * (problem.grad(v, batch) + self.lam * (v - down))
            return (v, w - self.alpha * problem.grad(w, batch)), None

        (v, w), _ = lax.scan(step, (client, down), data.draw(self.R))
        return v, w, {"moved": (w - down).norm(), "personal": (v - down).norm()}

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """v_i."""
        return single(client)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer fits v to the received w: one round of its own, from w."""
        return self.local(problem, down, down, data, key)[0]
