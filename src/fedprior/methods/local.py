"""Local: every client alone, the row no honest comparison goes without.

v_i <- v_i - alpha grad f_i(v_i; B), R times a round, going on from the client's own model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import optax
from jax import Array

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector, optimize, optimizer


@dataclass(frozen=True)
class Local(Method):
    """Plain local training, R minibatch steps a round.

    >>> Local(R=5).alpha
    0.01
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "the baseline without federation"
    sources: ClassVar[dict[str, str]] = {"R": "paper, section 5", "alpha": "paper, section 5"}
    ranges: ClassVar[dict[str, tuple[float, ...]]] = {"alpha": (0.01, 0.03, 0.1)}

    R: int = 20
    alpha: float = 0.01
    optimizer: str | optax.GradientTransformation = "sgd"

    def client(self, w0: Vector, key: Array) -> Tree:
        """Own model v_i and the optimizer's memory, which goes on across rounds."""
        return {"v": w0, "memory": optimizer(self.optimizer, self.alpha).init(w0)}

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """Nothing."""
        return ()

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R steps from the client's own model."""
        v, memory = optimize(
            lambda w, pick: problem.grad(w, data.batch(pick)),
            client["v"],
            data.draw(self.R),
            optimizer(self.optimizer, self.alpha),
            client["memory"],
        )
        return {"v": v, "memory": memory}, (), {"moved": (v - client["v"]).norm()}

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """Nothing to do."""
        return server

    def global_model(self, server: Tree) -> None:
        """There is none."""
        return None

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """v_i."""
        return single(client["v"])

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer starts from scratch and trains for one round."""
        return self.local(problem, self.client(problem.init(key), key), down, data, key)[0]
