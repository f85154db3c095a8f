"""Reptile: Nichol et al., "On First-Order Meta-Learning Algorithms", 2018.

client:    w_i <- w_i - alpha grad f_i(w_i; B),  R times from the received w
server:    w <- w + eps mean_i (w_i - w)
personal:  w after ``adapt`` further steps on the client's own training batches
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, hyper
from fedprior.core.method import Mixture, single
from fedprior.core.optimize import NAMED, local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector, weighted_mean
from fedprior.methods.fedavg import FedAvg


class Reptile(FedAvg):
    """FedAvg whose server goes eps of the way to the plain mean; personal: ``adapt`` more steps on own training batches.

    >>> Reptile(eps=0.5).adapt
    5
    """

    weighted: ClassVar[bool] = False
    paper: ClassVar[str] = "Nichol et al., 2018"
    cites: ClassVar[str] = "nichol2018reptile"
    objective: ClassVar[str] = (
        r"w \leftarrow w + \varepsilon \operatorname{mean}_i \bigl(U_i^R(w) - w\bigr), "
        r"\quad U_i(x) = x - \alpha \nabla f_i(x)"
    )

    alpha: float = hyper(0.01, "PRIOR, section 6", least=0, inert=0, needs=NAMED, meaning=STEP_SIZE)
    eps: float = hyper(
        1.0,
        "1: FedAvg with uniform weights; the paper anneals it",
        sweep=(0.3, 1.0),
        above=0,
        most=1,
        meaning="how far the server goes towards the mean of the clients' models",
    )
    adapt: int = hyper(
        5,
        "Reptile, section 6: a few inner steps at test time",
        least=0,
        meaning="steps with which the personal model is adapted",
    )

    def merge(self, server: Vector, ups: Vector, weights: Array, ids: Array, key: Array) -> Vector:
        """w <- w + eps mean_i (w_i - w); the mean is plain whatever the clients' sizes."""
        mean = weighted_mean(ups, jnp.full_like(weights, 1 / len(weights)))
        return server + self.eps * (mean - server)

    def personal_model(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> Mixture:
        """A few steps from the received w, not kept."""
        return single(local_steps(problem.grad, down, data, self.adapt, self.alpha, self.optimizer)[0])
