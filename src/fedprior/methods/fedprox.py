"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.

client:  w_i <- w_i - alpha [grad f_i(w_i; B) + mu (w_i - w)],  R times from the received w
server:  w <- sum_i p_i w_i
"""

from __future__ import annotations

from typing import ClassVar

from jax import Array

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, hyper
from fedprior.core.method import Info
from fedprior.core.optimize import NAMED, local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector
from fedprior.methods.fedavg import FedAvg


class FedProx(FedAvg):
    """FedAvg with a squared pull towards the received model; mu = 0 is FedAvg.

    >>> FedProx(mu=0.1).R
    20
    """

    paper: ClassVar[str] = "Li et al., MLSys 2020"
    cites: ClassVar[str] = "li2020fedprox"
    objective: ClassVar[str] = r"w_i \approx \arg\min_x f_i(x) + \frac{\mu}{2} \|x - w\|^2, \qquad w = \sum_i p_i w_i"

    alpha: float = hyper(0.01, "PRIOR, section 6", least=0, inert=0, needs=NAMED, meaning=STEP_SIZE)
    mu: float = hyper(
        0.01,
        "FedProx, section 5: among 0.001, 0.01, 0.1, 1",
        sweep=(0.001, 0.01, 0.1, 1.0),
        least=0,
        inert=0,
        meaning="how strongly local training is pulled towards the received model",
    )

    def local(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> tuple[Tree, Vector, Info]:
        """R proximal steps from the received w."""
        pull = lambda w: self.mu * (w - down)  # noqa: E731
        w, _ = local_steps(problem.grad, down, data, self.R, self.alpha, self.optimizer, pull=pull)
        return client, w, {"moved": (w - down).norm()}
