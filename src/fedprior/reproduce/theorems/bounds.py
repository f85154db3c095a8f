"""Theorem 1's conditions and its right-hand side, with the constants that its proof gives.

Two things are corrected before anything is computed:

- The assumption "strongly convex envelope settings" takes F_i to be (lam + mu_f)-strongly convex. That is the modulus of the
  proximal *objective*; the envelope itself has lam mu_f / (lam + mu_f), below mu_f for every lambda.
- The bound alpha_hat on the step is said to be below what the proof needs, c_1 >= 1. That is so where L_F <= 1 only, since
  the first term of its denominator lacks a factor L_F. A step counts as inside if it is below both.

gamma_Phi, sigma_Phi and eta enter as (1 + sigma_Phi)(u_m + eta gamma_Phi) with u_m = 1 (the spectral norm): the strain.
The ratio tau of the divergences of envelope and F is 1 on all problems here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Conditions:
    """What the bound on the step depends on."""

    mu: float  # mu_F, the modulus of F
    L: float  # L_E, the smoothness of the envelopes
    R: int = 1
    beta: float = 1.0
    strain: float = 1.0  # (1 + sigma_Phi)(1 + eta gamma_Phi)

    @property
    def L_F(self) -> float:
        """The smoothness of F by the paper's lemma: strain^2 L_E."""
        return self.strain**2 * self.L

    @property
    def c(self) -> float:
        """The proof's c = 4 (strain L_E)^2."""
        return 4 * (self.strain * self.L) ** 2

    @property
    def drift(self) -> float:
        """The first term of alpha_hat's denominator, with the 2^R of the client drift."""
        return math.e * self.strain * self.L * 2 ** (self.R + 6.5) * (1 / self.R + 2)

    def limits(self) -> dict[str, float]:
        """The upper bounds on the step alpha_m beta R, by name."""
        reach = self.mu * self.beta * self.R
        return {
            "beta / sqrt(2 c)": self.beta / math.sqrt(2 * self.c),
            "2 / mu_F": 2 / self.mu,
            "alpha_hat": reach / (self.drift + 18 * reach * self.L_F),
            "c_1 >= 1": reach / (self.L_F * self.drift + 18 * reach * self.L_F),
        }

    @property
    def bound(self) -> float:
        """The largest step that meets all conditions."""
        return min(self.limits().values())

    @property
    def rounds(self) -> float:
        """The fewest rounds for which a step within the bound meets T >= 2 / (mu_F step)."""
        return 2 / (self.mu * self.bound)

    def least_beta(self, step: float) -> float:
        """The smallest beta with which ``step`` is within the bound; infinite if there is none.

        beta -> infinity with the step alpha_m beta R held fixed means ever smaller local steps, and no client drift.
        """
        room = self.mu * self.R * (1 - 18 * self.L_F * step)
        if room <= 0 or step > 2 / self.mu:
            return math.inf
        return max(step * self.drift * max(self.L_F, 1.0) / room, step * math.sqrt(2 * self.c))


@dataclass(frozen=True)
class Noise:
    """What the right-hand side depends on besides."""

    sigma: float  # sigma_{F,*}
    start: float  # ||w^(0) - w*||^2
    N: int
    S: int
    ball: float = 0.0  # delta: local errors and gamma_Phi, see ``local_error``


def sampling(N: int, S: int) -> float:
    """(N / S - 1) / (N - 1): how much of the clients' variance is left in the mean of S of N."""
    return (N / S - 1) / (N - 1)


def local_error(conditions: Conditions, gamma_phi: float) -> float:
    """The proof's delta with exact proximal points on whole batches: 16 (strain L_E gamma_Phi)^2."""
    return 16 * (conditions.strain * conditions.L * gamma_phi) ** 2


def error_bound(at: Conditions, noise: Noise, step: float, rounds: float) -> dict[str, float]:
    """The proof's bound on E D_F(w_bar, w*), term by term, before the constants are dropped."""
    drift = 2 ** (at.R + 4) * math.e * at.c / (at.mu * (at.beta * at.R) ** 2)
    return {
        "start": at.mu * math.exp(-step * at.mu * rounds / 2) * noise.start,
        "ball": 8 * noise.ball / at.mu,
        "sampling": 6 * sampling(noise.N, noise.S) * noise.sigma**2 * step,
        "drift": drift * (2 * (1 + 2 * at.R) * noise.sigma**2 + noise.ball) * step**2,
    }
