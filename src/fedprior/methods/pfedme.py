"""pFedMe: Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020.

R times, on one batch B each:   theta <- theta - alpha [grad f_i(theta; B) + lam (theta - w_i)],  K times
                                w_i <- w_i - alpha_m lam (w_i - theta)
server:                         w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector


@dataclass(frozen=True)
class PFedMe(Method):
    """Each proximal loop starts from the last theta (the paper), or from w_i as pFedBreD's released code does.

    >>> PFedMe(start="w").lam
    15.0
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Dinh et al., NeurIPS 2020"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "K": "PRIOR, section 5",
        "lam": "PRIOR's released scripts: 15 for MCLR, CNN and LSTM, 30 for DNN (set by each task)",
        "alpha": "PRIOR, section 5",
        "alpha_m": "PRIOR, section 5",
        "start": "pFedMe's algorithm: theta; PRIOR's released code: w",
    }
    ranges: ClassVar[dict[str, tuple[float, ...]]] = {"lam": (15.0, 30.0, 60.0)}  # PRIOR, section 5: from 15 to 60

    R: int = 20
    K: int = 5
    lam: float = 15.0
    alpha: float = 0.01
    alpha_m: float = 0.01
    start: str = "theta"

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules, and where the proximal loop may start."""
        return [*super().rules(), ("start", "valid: theta, w", self.start in ("theta", "w"))]

    def client(self, w0: Vector, key: Array) -> Tree:
        """theta_i."""
        return w0

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R proximal points and R steps of w_i towards them."""

        def iterate(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            w, theta = carry
            start = theta if self.start == "theta" else w
            theta = problem.proximal_steps(w, start, data.batch(pick), self.lam, self.alpha, self.K)
            return (w - self.alpha_m * (self.lam * (w - theta)), theta), None

        (w, theta), _ = lax.scan(iterate, (down, client), data.draw(self.R))
        return theta, w, {"moved": (w - down).norm(), "personal": (theta - w).norm()}

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """theta_i."""
        return single(client)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer fits theta to the received w: one round of its own, of which only theta is kept."""
        return self.local(problem, down, down, data, key)[0]
