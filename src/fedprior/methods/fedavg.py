"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

w_i <- w_i - alpha grad f_i(w_i; B), R times from the received w;    w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import optax
from jax import Array

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, optimize, optimizer


@dataclass(frozen=True)
class FedAvg(Method):
    """One global model; its personal model is the received global one.

    >>> FedAvg(R=5).alpha
    0.01
    """

    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"
    sources: ClassVar[dict[str, str]] = {"R": "paper, section 5", "alpha": "paper, section 5"}
    ranges: ClassVar[dict[str, tuple[float, ...]]] = {"alpha": (0.01, 0.03, 0.1)}

    R: int = 20
    alpha: float = 0.01
    optimizer: str | optax.GradientTransformation = "sgd"

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R steps from the received w; the optimizer starts afresh each round."""
        w, _ = optimize(
            lambda w, pick: problem.grad(w, data.batch(pick)),
            down,
            data.draw(self.R),
            optimizer(self.optimizer, self.alpha),
        )
        return client, w, {"moved": (w - down).norm()}

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """The received w."""
        return single(down)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer just receives."""
        return ()
