"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.

w_i <- w_i - alpha [grad f_i(w_i; B) + mu (w_i - w)], R times from the received w;    w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array

from fedprior.method import Data, Info, Problem
from fedprior.methods.fedavg import FedAvg
from fedprior.vectors import Tree, optimize, optimizer


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a squared pull towards the received model; mu = 0 is FedAvg.

    >>> FedProx(mu=0.1).R
    20
    """

    paper: ClassVar[str] = "Li et al., MLSys 2020"
    sources: ClassVar[dict[str, str]] = {**FedAvg.sources, "mu": "FedProx, section 5: among 0.001, 0.01, 0.1, 1"}
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"mu": (0.001, 0.01, 0.1, 1.0)}

    mu: float = 0.01

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R proximal steps from the received w."""
        w, _ = optimize(
            lambda w, pick: problem.grad(w, data.batch(pick)) + self.mu * (w - down),
            down,
            data.draw(self.R),
            optimizer(self.optimizer, self.alpha),
        )
        return client, w, {"moved": (w - down).norm()}

    def idle(self) -> list[str]:
        """mu = 0 leaves FedAvg."""
        return [*super().idle(), *(["mu = 0"] if self.mu == 0 else [])]
