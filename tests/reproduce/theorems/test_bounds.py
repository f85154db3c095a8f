"""Theorem 1's constants against values by hand, and against the inequalities of its proof."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fedprior.reproduce.theorems.bounds import Conditions, Noise, error_bound, local_error, sampling


def test_the_step_bound_by_hand() -> None:
    """mu = 0.5, L = 0.8, R = 1: the 2^R term is e * 0.8 * 2^7.5 * 3 = 1180.9477."""
    limits = Conditions(0.5, 0.8).limits()
    assert limits["beta / sqrt(2 c)"] == pytest.approx(1 / (2 * math.sqrt(2) * 0.8))
    assert limits["2 / mu_F"] == 4
    assert limits["alpha_hat"] == pytest.approx(0.5 / (1180.9477 + 18 * 0.5 * 0.8), rel=1e-6)
    assert limits["c_1 >= 1"] == pytest.approx(0.5 / (0.8 * 1180.9477 + 18 * 0.5 * 0.8), rel=1e-6)
    assert Conditions(0.5, 0.8).bound == limits["alpha_hat"]
    assert Conditions(0.5, 0.8).rounds == pytest.approx(4 * (1180.9477 + 7.2) / 0.5, rel=1e-6)


@pytest.mark.parametrize("L", [0.3, 5.0])
@pytest.mark.parametrize(("R", "beta"), [(1, 1.0), (3, 50.0), (20, 1e9)])
def test_within_the_bound_the_proofs_c_1_is_at_least_one(L: float, R: int, beta: float) -> None:
    """The stated alpha_hat alone does not see to it where L_F > 1."""
    at = Conditions(0.2, L, R, beta, strain=1.1)

    def c_1(step: float) -> float:
        drift = math.e * 1.1 * L * 2 ** (R + 6.5) * (1 / R + 2) / (0.2 * beta * R)
        return 2 - step * (drift + 12 + 6) * 1.1**2 * L  # N / S - 1 is N - 1 at the most, with S = 1

    assert c_1(at.bound) >= 1 - 1e-12
    assert (c_1(at.limits()["alpha_hat"]) >= 1 - 1e-12) == (L < 1)


def test_the_least_beta_is_the_least() -> None:
    at = Conditions(0.4, 0.7, R=2)
    beta = at.least_beta(0.05)
    assert Conditions(0.4, 0.7, 2, beta).bound == pytest.approx(0.05)
    assert Conditions(0.4, 0.7, 2, 0.99 * beta).bound < 0.05 < Conditions(0.4, 0.7, 2, 1.01 * beta).bound
    assert at.least_beta(0.08) == math.inf  # above 1 / (18 L_F) = 0.0794
    assert Conditions(0.4, 3.0, 2).least_beta(0.01) == pytest.approx(
        next(b / 100 for b in range(1, 10**7) if Conditions(0.4, 3.0, 2, b / 100).bound >= 0.01), abs=0.01
    )


def test_the_right_hand_side_by_hand() -> None:
    at = Conditions(0.5, 0.8, R=2, beta=2.0)
    terms = error_bound(at, Noise(sigma=3.0, start=7.0, N=9, S=3, ball=0.1), step=0.01, rounds=400)
    assert terms["start"] == pytest.approx(0.5 * math.exp(-1) * 7)
    assert terms["ball"] == pytest.approx(8 * 0.1 / 0.5)
    assert terms["sampling"] == pytest.approx(6 * (2 / 8) * 9 * 0.01)
    assert terms["drift"] == pytest.approx(64 * math.e * 4 * 0.64 / (0.5 * 16) * (10 * 9 + 0.1) * 1e-4)
    assert local_error(Conditions(1.0, 0.5, strain=2.0), 3.0) == pytest.approx(16 * 9)


def test_sampling_is_the_variance_of_a_mean_without_replacement() -> None:
    x = np.array([1.0, 4.0, -2.0, 0.5, 3.0])
    means = [np.mean(pick) for pick in itertools.combinations(x, 2)]
    assert np.var(means) == pytest.approx(sampling(5, 2) * np.var(x))
