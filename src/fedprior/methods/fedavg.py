"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.

client:  w_i <- w_i - alpha grad f_i(w_i; B),  R times from the received w
server:  w <- sum_i p_i w_i
"""

from __future__ import annotations

from typing import ClassVar

import optax
from jax import Array

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import NAMED, OPTIMIZERS, Optimizer, local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector


class FedAvg(Method):
    """One global model, which is every client's personal model too.

    >>> FedAvg(R=5).alpha
    0.01
    """

    paper: ClassVar[str] = "McMahan et al., AISTATS 2017"
    cites: ClassVar[str] = "mcmahan2017fedavg"
    objective: ClassVar[str] = r"\min_w \sum_i p_i f_i(w)"

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(
        0.01, "PRIOR, section 6", sweep=(0.01, 0.03, 0.1), least=0, inert=0, needs=NAMED, meaning=STEP_SIZE
    )
    optimizer: Optimizer = hyper(
        "sgd", choices=OPTIMIZERS, objects=optax.GradientTransformation, meaning="which optimizer takes the steps"
    )

    def local(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> tuple[Tree, Vector, Info]:
        """R steps from the received w; the optimizer starts afresh each round."""
        w, _ = local_steps(problem.grad, down, data, self.R, self.alpha, self.optimizer)
        return client, w, {"moved": (w - down).norm()}

    def personal_model(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> Mixture:
        """The received w."""
        return single(down)

    def join(self, problem: Problem, down: Vector, data: Data, key: Array) -> Tree:
        """A newcomer keeps nothing either."""
        return ()
