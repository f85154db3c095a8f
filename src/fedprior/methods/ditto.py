"""Ditto: Li et al., "Fair and Robust Federated Learning Through Personalization", ICML 2021.

R times, on one batch B each:   v_i <- v_i - alpha [grad f_i(v_i; B) + lam (v_i - w)]    (w as received)
                                w_i <- w_i - alpha grad f_i(w_i; B)
server:                         w <- sum_i p_i w_i
"""

from __future__ import annotations

from typing import ClassVar

from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector


class Ditto(Method):
    """FedAvg for w, and beside it a personal v_i pulled towards the received w; lam = 0 is Local.

    Ditto's lam is of order 1; pFedMe's 15 to 60 would make v_i nearly w.

    >>> Ditto().lam
    1.0
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Li et al., ICML 2021"
    cites: ClassVar[str] = "li2021ditto"
    objective: ClassVar[str] = (
        r"\min_{v_i} f_i(v_i) + \frac{\lambda}{2} \|v_i - w^*\|^2, \qquad w^* = \arg\min_w \sum_i p_i f_i(w)"
    )

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(
        0.01, "PRIOR, section 6", least=0, inert=0, meaning="step size, of the personal model and of the shared one"
    )
    lam: float = hyper(
        1.0,
        "Ditto's code: 1, among 0.1, 1, 2",
        sweep=(0.1, 1.0, 2.0),
        least=0,
        inert=0,
        meaning="how strongly the personal model is pulled towards the received one",
    )

    def client(self, w0: Vector, key: Array) -> Vector:
        """v_i."""
        return w0

    def local(
        self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array
    ) -> tuple[Vector, Vector, Info]:
        """R steps of both models on the same batches."""

        def step(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            v, w = carry
            batch = data.batch(pick)
            v = v - self.alpha * (problem.grad(v, batch) + self.lam * (v - down))
            return (v, w - self.alpha * problem.grad(w, batch)), None

        (v, w), _ = lax.scan(step, (client, down), data.draw(self.R))
        return v, w, {"moved": (w - down).norm(), "personal": (v - down).norm()}

    def personal_model(self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array) -> Mixture:
        """v_i."""
        return single(client)
