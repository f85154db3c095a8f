"""pFedMe: Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020.

R times, on one batch B each:   theta <- theta - alpha [grad f_i(theta; B) + lam (theta - w_i)],  K times
                                w_i <- w_i - alpha_m lam (w_i - theta)
server:                         w <- sum_i p_i w_i
"""

from __future__ import annotations

from typing import ClassVar

from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector

SCRIPTS = "PRIOR's released scripts: 15 for MCLR, CNN and LSTM, 30 for DNN (set by each task)"


class PFedMe(Method):
    """Each proximal loop starts from the last theta (the paper), or from w_i as pFedBreD's released code does.

    >>> PFedMe(start="w").lam
    15.0
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Dinh et al., NeurIPS 2020"
    cites: ClassVar[str] = "dinh2020pfedme"
    objective: ClassVar[str] = (
        r"\min_w \sum_i p_i F_i(w), \qquad F_i(w) = \min_\theta f_i(\theta) + \frac{\lambda}{2} \|\theta - w\|^2"
    )

    R: int = hyper(
        20,
        "PRIOR, section 6",
        least=1,
        meaning="batches that a client trains on in a round, one step of its local model each",
    )
    K: int = hyper(5, "PRIOR, section 6", least=1, meaning="steps of the personal model on each batch")
    lam: float = hyper(
        15.0,
        SCRIPTS,
        sweep=(15.0, 30.0, 60.0),
        least=0,
        inert=0,
        meaning="how strongly the personal model is pulled towards the local one",
    )  # PRIOR, section 6: from 15 to 60
    alpha: float = hyper(0.01, "PRIOR, section 6", least=0, inert=0, meaning="step size of the personal model")
    alpha_m: float = hyper(
        0.01, "PRIOR, section 6", least=0, inert=0, meaning="step size of the local model, which the server averages"
    )
    start: str = hyper(
        "theta",
        "pFedMe's algorithm: theta; PRIOR's released code: w",
        choices=("theta", "w"),
        meaning="where the personal model's steps on a batch start: at its last value or at the local model",
    )

    def client(self, w0: Vector, key: Array) -> Vector:
        """theta_i."""
        return w0

    def local(
        self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array
    ) -> tuple[Vector, Vector, Info]:
        """R proximal points and R steps of w_i towards them."""

        def iterate(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            w, theta = carry
            start = theta if self.start == "theta" else w
            theta = problem.proximal_steps(w, start, data.batch(pick), self.lam, self.alpha, self.K)
            return (w - self.alpha_m * (self.lam * (w - theta)), theta), None

        (w, theta), _ = lax.scan(iterate, (down, client), data.draw(self.R))
        return theta, w, {"moved": (w - down).norm(), "personal": (theta - w).norm()}

    def personal_model(self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array) -> Mixture:
        """theta_i."""
        return single(client)
