"""The paper's two theorems seen in numbers, on problems whose answer is known.

- rate: the error of Theorem 1's weighted average iterate against T, N, S and beta (`rate`);
- step: Theorem 1's bound on the step, and what happens below and above it;
- radius, meta-steps: how far the personal models are from the optimal global one, against lambda and eta (`personal`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fedprior.reproduce.theorems.bounds import Conditions
from fedprior.reproduce.theorems.convex import D, Setting, logistic, quadratic
from fedprior.reproduce.theorems.personal import deviation, limits, meta_steps, radius
from fedprior.reproduce.theorems.rate import QUICK, Curve, Plan, Table, Watch, by_beta, by_clients, by_rounds, slopes
from fedprior.reproduce.theorems.recursion import runner

R = 2  # local steps where the step varies
LARGER = (0.2, 0.5, 0.8)


@dataclass(frozen=True)
class Measured:
    """Everything that was measured."""

    rounds: list[Curve]
    clients: list[Curve]
    beta: list[Curve]
    radius: Table
    meta: Table
    limit: Table
    deviation: Table
    steps: Table
    bounds: Table

    def tables(self) -> dict[str, Table]:
        """All of it as tables, by name."""
        curves = [*self.rounds, *self.clients, *self.beta]
        return {
            "slopes": slopes(curves),
            "rate": [row for curve in self.rounds for row in curve.table()],
            "clients": [row for curve in self.clients for row in curve.table()],
            "beta": [row for curve in self.beta for row in curve.table()],
            "bounds": self.bounds,
            "step": self.steps,
            "radius": self.radius,
            "meta": self.meta,
            "limit": self.limit,
            "deviation": self.deviation,
        }


def conditions(setting: Setting, local: int, beta: float = 1.0) -> Conditions:
    """Theorem 1's with the identity mean."""
    return Conditions(setting.mu_envelope, setting.l_envelope, local, beta)


def step(factors: Iterable[float], watch: Watch, rounds: int = 300) -> Table:
    """The error after 300 rounds with S = N, for steps at multiples of Theorem 1's bound."""
    watch("Theorem 1: steps below and above the bound")
    setting = quadratic()
    bound, run = conditions(setting, R).bound, runner(setting, setting.N, R)
    table: Table = []
    for factor in factors:
        w = run(factor * bound, rounds, np.full(D, 1.0)).last[0]
        error = float(setting.gap(w)) if np.isfinite(w).all() else np.inf
        table.append({"step / bound": float(factor), "step": float(factor * bound), "error": min(error, 1e30)})
    return table


def bound_table(locals_: Iterable[int] = (1, 2, 5, 20)) -> Table:
    """The bound on the step, the rounds it asks for and the beta that a step of 1 / (20 L_F) takes, against R."""
    setting = quadratic()
    table: Table = []
    for local in locals_:
        at = conditions(setting, local)
        table.append(
            {
                "R": local,
                "bound": at.bound,
                "rounds": at.rounds,
                "beta": at.least_beta(1 / (20 * at.L_F)),
                "1 / (20 L_F)": 1 / (20 * at.L_F),
            }
        )
    return table


def deviation_table(etas: Iterable[float], watch: Watch) -> Table:
    """sigma_Phi of lg on logistic regression, where Dmu is not constant."""
    watch("Theorem 2: sigma_Phi of lg on logistic regression")
    setting = logistic()
    table: Table = []
    for eta in etas:
        sigma = deviation(setting, eta)
        strain = (1 + sigma) * (1 + eta * setting.l_f)
        table.append({"eta": float(eta), "sigma_Phi": sigma, "gamma_Phi": setting.l_f, "strain": strain})
    return table


def meta_table(quick: bool, etas: Iterable[float], watch: Watch) -> Table:
    """The personal models against eta; the memory's term is the smaller one, so that its eta goes further."""
    if quick:
        return meta_steps(etas, watch, ("lg",))
    return [*meta_steps(etas, watch, ("lg", "mh")), *meta_steps((*etas, *LARGER), watch, ("meg",))]


def measure(watch: Watch, seeds: int | None = None, quick: bool = False) -> Measured:
    """Measure both theorems; ``quick`` only shows that everything works."""
    plan = QUICK if quick else Plan()
    plan = plan if seeds is None else replace(plan, seeds=seeds)
    factors = (0.1, 1, 100, 7000) if quick else (0.1, 1, 3, 10, 30, 100, 300, 1000, 2000, 4000, 5500, 6100)
    lams = (1, 100) if quick else (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
    etas = (0, 0.01, 0.05) if quick else (0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.08)
    return Measured(
        bounds=bound_table(),
        steps=step(factors, watch),
        rounds=by_rounds(plan, watch),
        clients=by_clients(plan, watch),
        beta=by_beta(plan, watch),
        radius=radius(lams, watch),
        meta=meta_table(quick, etas, watch),
        limit=limits([eta for eta in etas if eta]),
        deviation=[] if quick else deviation_table((0.01, 0.05, 0.1, 0.5), watch),
    )
