"""Theorem 1's measurements: which steps are taken, whether they are inside, and what comes out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedprior.reproduce.theorems.convex import D, quadratic
from fedprior.reproduce.theorems.rate import Curve, Plan, Point, by_clients, by_rounds, measure, slopes


def test_every_step_of_the_full_plan_is_inside_the_conditions() -> None:
    """T >= 2 / (mu_F step), and step <= bound for beta = 1 with R = 2, and for some beta with R = 1."""
    plan, q = Plan(), quadratic()
    mu = q.mu_envelope
    for T in (*plan.from_best, plan.rounds):
        assert T * Point(q, 2, T).step * mu == pytest.approx(2)
        assert Point(q, 2, T).least_beta < math.inf
    for T in plan.from_away:
        p = Point(q, 2, T, start=np.ones(D))
        assert p.step == pytest.approx(2 / mu * 2 * math.log(T) / T)
        assert p.least_beta < math.inf
    for T in plan.drift:
        p = Point(q, 8, T, R=2)
        assert p.step <= p.conditions.bound
        assert p.least_beta <= 1
    outside = Point(q, 8, 3000, R=2)
    assert outside.step > outside.conditions.bound
    assert outside.least_beta == math.inf
    assert Point(q, 2, 30).least_beta == math.inf  # step > 1 / (18 L_F)


def test_the_errors_have_the_order_they_must_have() -> None:
    q = quadratic()
    curve = measure("", "T", [Point(q, 8, T, R=2) for T in (4000, 8000)], seeds=3)
    assert len(curve.errors) == 1  # nothing is random
    assert curve.slope().value == pytest.approx(-2, abs=0.01)
    assert (curve.mean > 0).all()
    assert (curve.mean < curve.bounds).all()
    beta = measure("", "beta", [Point(q, 8, 4000, 2, b) for b in (1.0, 4.0)], seeds=1)
    assert beta.slope().value == pytest.approx(-2, abs=0.01)
    assert beta.bound_slope() == pytest.approx(-2)
    assert curve.inside


def test_tables_and_slopes_of_a_curve() -> None:
    x, errors = np.array([10, 100]), np.array([[2.0, 0.2], [4.0, 0.4]])
    curve = Curve("c", "T", x, errors, np.array([0.1, 0.01]), np.array([9.0, 0.09]), np.array([1.0, math.inf]))
    assert curve.table()[1] == pytest.approx(
        {"curve": "c", "T": 100, "step": 0.01, "least beta": math.inf, "error": 0.3, "±95 %": 1.96 * 0.1, "bound": 0.09}
    )
    (row,) = slopes([curve])
    assert (row["slope"], row["bound's"], row["inside"]) == (pytest.approx(-1), pytest.approx(-2), False)
    assert (row["low"], row["high"]) == (pytest.approx(-1), pytest.approx(-1))  # all seeds agree on the slope


def test_the_part_with_beta_one_has_a_row_of_its_own() -> None:
    x, errors = np.array([1, 10, 100]), np.array([[5.0, 0.2, 0.02]])
    curve = Curve("c", "T", x, errors, np.ones(3), np.array([9.0, 0.9, 0.009]), np.array([7.0, 1.0, 0.5]))
    whole, part = slopes([curve])
    assert part["curve"] == "c, part with beta = 1"
    assert (part["slope"], part["bound's"]) == (pytest.approx(-1), pytest.approx(-2))
    assert whole["slope"] < -1.1
    assert curve.with_beta_one()[0].with_beta_one() == []  # all of it


@pytest.mark.slow
def test_the_rate_is_one_over_t_and_one_over_n_at_a_fixed_share() -> None:
    """-1 and not -0.5, and at a fixed S no gain from N."""
    plan = Plan(seeds=64, from_best=(100, 800, 6400), from_away=(), nonlinear=(), drift=(), clients=(8, 32, 128),
                chosen=(), rounds=200)  # fmt: skip
    (by_T,) = by_rounds(plan, lambda text: None)
    share, fixed = by_clients(plan, lambda text: None)
    for curve in (by_T, share):
        at = curve.slope()
        assert at.half <= 0.15
        assert at.low <= curve.bound_slope() <= at.high
        assert at.high < -0.5
    assert fixed.slope().low > -0.1
