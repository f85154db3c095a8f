"""Theorem 1: the error of the weighted average iterate against T, N and S, with steps inside the theorem's conditions.

The proof asks for step >= 2 / (mu_F T), with which its first term, mu_F exp(-step mu_F T / 2) ||w^(0) - w*||^2, does not
fall with T. Two ways out are measured: starting at w*, where that term is 0 and the step may be 2 / (mu_F T); and starting
elsewhere with the step (2 / mu_F) log(T^2) / T, so that the term falls like 1 / T^2 and the others gain a logarithm.

With R = 1 the method depends on alpha_m and beta through the step alone, so that a step is inside the conditions if it is
for any beta. With R = 2 beta is 1, as in the paper's experiments, unless it is beta that varies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprior.reproduce.theorems.bounds import Conditions, Noise, error_bound
from fedprior.reproduce.theorems.convex import D, Setting, logistic, quadratic
from fedprior.reproduce.theorems.recursion import runner
from fedprior.reproduce.theorems.slopes import Slope, slope_of

Table = list[dict[str, Any]]
Watch = Callable[[str], None]  # told what is being measured


@dataclass(frozen=True)
class Curve:
    """Errors along one of T, N, S and beta."""

    name: str
    along: str  # "T", "N", "S" or "beta"
    x: np.ndarray  # [points]
    errors: np.ndarray  # [seeds, points]
    steps: np.ndarray  # [points]
    bounds: np.ndarray  # [points] the proof's right-hand side
    betas: np.ndarray  # [points] the smallest beta with which the step is inside the conditions

    @property
    def inside(self) -> bool:
        """Whether every step meets the theorem's conditions (with R = 1 for some beta, else for the one used)."""
        return bool(np.isfinite(self.betas).all())

    def with_beta_one(self) -> list[Curve]:
        """The part that is inside the conditions with beta = 1, if it is a part and has a slope."""
        keep = self.betas <= 1
        if keep.all() or keep.sum() < 2:
            return []
        columns = (self.x[keep], self.errors[:, keep], self.steps[keep], self.bounds[keep], self.betas[keep])
        return [Curve(f"{self.name}, part with beta = 1", self.along, *columns)]

    @property
    def mean(self) -> np.ndarray:
        """The mean error over seeds [points]."""
        return np.asarray(self.errors.mean(0))

    @property
    def half(self) -> np.ndarray:
        """Half of the mean's 95 % interval [points]; 0 where nothing is random."""
        n = len(self.errors)
        return np.zeros(len(self.x)) if n == 1 else 1.96 * self.errors.std(0, ddof=1) / math.sqrt(n)

    def slope(self) -> Slope:
        """The slope of the error against x."""
        return slope_of(self.x, self.errors)

    def bound_slope(self) -> float:
        """The slope of the proof's right-hand side at the same points."""
        return slope_of(self.x, self.bounds[None]).value

    def table(self) -> Table:
        """One row per point."""
        columns = (self.x.tolist(), self.steps, self.betas, self.mean, self.half, self.bounds)
        names = (self.along, "step", "least beta", "error", "±95 %", "bound")
        return [
            {"curve": self.name, **dict(zip(names, [row[0], *map(float, row[1:])], strict=True))}
            for row in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class Point:
    """One measurement: a setting, S of its clients, T rounds, R local steps, beta."""

    setting: Setting
    S: int
    T: int
    R: int = 1
    beta: float = 1.0  # without effect where R = 1
    start: np.ndarray | None = None  # None: w*

    @property
    def step(self) -> float:
        """2 / (mu_F T) from w*, and log(T^2) times as much from elsewhere."""
        longer = 1.0 if self.start is None else math.log(self.T**2)
        return longer * 2 / (self.setting.mu_envelope * self.T)

    @property
    def conditions(self) -> Conditions:
        """Those of the theorem; with R = 1 in the limit of a large beta."""
        s = self.setting
        return Conditions(s.mu_envelope, s.l_envelope, self.R, math.inf if self.R == 1 else self.beta)

    @property
    def bound(self) -> float:
        """The proof's bound on the error."""
        away = 0.0 if self.start is None else float(np.sum((self.start - self.setting.best) ** 2))
        noise = Noise(self.setting.sigma, away, self.setting.N, self.S)
        return sum(error_bound(self.conditions, noise, self.step, self.T).values())

    @property
    def least_beta(self) -> float:
        """The smallest beta with which the step is inside; infinite if there is none, or the one used is too small."""
        least = self.conditions.least_beta(self.step)
        return least if self.R == 1 or least <= self.beta else math.inf


def measure(name: str, along: str, points: list[Point], seeds: int) -> Curve:
    """Run all points; with S = N nothing is random, and one run is enough."""
    errors = []
    for p in points:
        run = runner(p.setting, p.S, p.R, 1 if p.S == p.setting.N else seeds)
        errors.append(run(p.step, p.T, p.start, p.beta).errors)
    x = [{"T": p.T, "N": p.setting.N, "S": p.S, "beta": p.beta}[along] for p in points]
    columns = [np.array([getattr(p, part) for p in points]) for part in ("step", "bound", "least_beta")]
    return Curve(name, along, np.array(x), np.stack(errors, 1), *columns)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    seeds: int = 128
    from_best: Iterable[int] = (100, 400, 1600, 6400, 25600, 102400)
    from_away: Iterable[int] = (800, 1600, 3200, 6400, 12800, 25600)
    nonlinear: Iterable[int] = (100, 200, 400, 800, 1600, 3200)
    drift: Iterable[int] = (4000, 8000, 16000, 32000, 64000, 128000)
    clients: Iterable[int] = (8, 16, 32, 64, 128)
    chosen: Iterable[int] = (1, 2, 4, 8, 16)  # S of N = 32
    rounds: int = 1000  # rounds where N and S vary
    more: int = 4  # times as many seeds there, since those runs are cheap
    betas: Iterable[float] = (1.0, 2.0, 4.0, 8.0, 16.0)


QUICK = Plan(24, (100, 1600), (), (), (4000, 8000), (8, 32), (), 200, 1, (1.0, 4.0))


def by_rounds(plan: Plan, watch: Watch) -> list[Curve]:
    """The error against T."""
    q, away = quadratic(N=8), np.full(D, 1.0)
    regression = logistic() if plan.nonlinear else q
    curves = {
        "quadratic, S = 2 of 8, from w*": [Point(q, 2, T) for T in plan.from_best],
        "quadratic, S = 2 of 8, from elsewhere": [Point(q, 2, T, start=away) for T in plan.from_away],
        "logistic, S = 4 of 16, from w*": [Point(regression, 4, T) for T in plan.nonlinear],
        "quadratic, S = N = 8, R = 2, from w*": [Point(q, 8, T, R=2) for T in plan.drift],
    }
    return _along("T", curves, plan.seeds, watch)


def by_clients(plan: Plan, watch: Watch) -> list[Curve]:
    """The error against N and S at one T."""
    seeds, settings, one = plan.more * plan.seeds, {N: quadratic(N=N) for N in plan.clients}, quadratic(N=32)
    against_N = {
        "S = N / 4": [Point(s, N // 4, plan.rounds) for N, s in settings.items()],
        "S = 2": [Point(s, 2, plan.rounds) for s in settings.values()],
    }
    against_S = {"N = 32": [Point(one, S, plan.rounds) for S in plan.chosen]}
    return [
        *_along("N", against_N, seeds, watch),
        *_along("S", against_S, seeds, watch),
    ]


def by_beta(plan: Plan, watch: Watch) -> list[Curve]:
    """The error of client drift against beta, the step alpha_m beta R held fixed."""
    q = quadratic()
    return _along("beta", {"S = N = 8, R = 2, T = 4000": [Point(q, 8, 4000, 2, b) for b in plan.betas]}, 1, watch)


def _along(along: str, curves: dict[str, list[Point]], seeds: int, watch: Watch) -> list[Curve]:
    """Measure the curves that have points."""
    measured = []
    for name, points in curves.items():
        if points:
            watch(f"Theorem 1: error against {along}: {name}")
            measured.append(measure(name, along, points, seeds))
    return measured


def slopes(curves: list[Curve]) -> Table:
    """The slope of each curve, its interval, the slope of the proof's bound, and whether all its steps are inside.

    A curve of which a part only is inside with beta = 1 has a row for that part as well.
    """
    rows: Table = []
    for c in (part for curve in curves for part in (curve, *curve.with_beta_one())):
        at = c.slope()
        rows.append(
            {
                "curve": c.name,
                "against": c.along,
                "slope": at.value,
                "low": at.low,
                "high": at.high,
                "bound's": c.bound_slope(),
                "inside": c.inside,
            }
        )
    return rows
