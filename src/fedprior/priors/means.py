"""Relaxed mirror descent: how a client places the mean of its prior.

All strategies of the paper's Eq. (mu) are one formula with two terms switched on or off:

    mu(w) = w - eta_alpha g(w) - eta (m - theta)

g is the loss gradient ("lg"), m - theta the memorised envelope gradient ("meg"; m is the client's own last local model),
"mh" the hybrid of both, "identity" neither (then pFedBreD is pFedMe).
"""

from __future__ import annotations

from dataclasses import dataclass

from fedprior.problem import Batch, Problem
from fedprior.vectors import Vector


@dataclass(frozen=True)
class Mean:
    """Which of the two terms a strategy has."""

    gradient: bool
    memory: bool


MEANS = {
    "identity": Mean(gradient=False, memory=False),
    "lg": Mean(gradient=True, memory=False),
    "meg": Mean(gradient=False, memory=True),
    "mh": Mean(gradient=True, memory=True),
}


def meta_gradient(problem: Problem, w: Vector, batches: list[Batch], eta_alpha: float) -> Vector:
    """g(w): grad f(w; B), or with two batches the first-order meta gradient grad f(w - eta_alpha grad f(w; B1); B2)."""
    for batch in batches[:-1]:
        w = w - eta_alpha * problem.grad(w, batch)
    return problem.grad(w, batches[-1])
