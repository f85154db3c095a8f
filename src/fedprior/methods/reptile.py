"""Reptile: Nichol et al., "On First-Order Meta-Learning Algorithms", 2018.

w_i <- w_i - alpha grad f_i(w_i; B), R times from the received w;    w <- w + eps mean_i (w_i - w)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from fedprior.method import Data, Mixture, Problem, single
from fedprior.methods.fedavg import FedAvg
from fedprior.vectors import Tree, optimize, optimizer, weighted_mean


@dataclass(frozen=True)
class Reptile(FedAvg):
    """FedAvg whose server goes eps of the way to the plain mean; personal: ``adapt`` more steps on own training batches.

    >>> Reptile(eps=0.5).adapt
    5
    """

    paper: ClassVar[str] = "Nichol et al., 2018"
    sources: ClassVar[dict[str, str]] = {
        **FedAvg.sources,
        "eps": "1: FedAvg with uniform weights; the paper anneals it",
        "adapt": "Reptile, section 6: a few inner steps at test time",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"eps": (0.3, 1.0)}

    eps: float = 1.0
    adapt: int = 5

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules, a step of the server within (0, 1], and whole adaptation steps."""
        return [
            *super().rules(),
            ("eps", "it must be above 0 and at most 1", 0 < self.eps <= 1),
            ("adapt", "it counts steps: a whole number of at least 0", self.adapt >= 0),
        ]

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """w <- w + eps mean_i (w_i - w); the mean is plain whatever the clients' sizes."""
        mean = weighted_mean(ups, jnp.full_like(weights, 1 / len(weights)))
        return server + self.eps * (mean - server)

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """A few steps from the received w, not kept."""
        w, _ = optimize(
            lambda w, pick: problem.grad(w, data.batch(pick)),
            down,
            data.draw(self.adapt),
            optimizer(self.optimizer, self.alpha),
        )
        return single(w)
