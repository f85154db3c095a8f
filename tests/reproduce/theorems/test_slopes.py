"""The slope and its interval on data whose slope is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedprior.reproduce.theorems.slopes import slope_of

X = np.array([1.0, 4.0, 16.0, 64.0])


def errors(rng: np.random.Generator, seeds: int = 40) -> np.ndarray:
    """Errors of slope -1 with an expectation of 3 / x; those of one seed go up and down together."""
    common = rng.exponential(size=(seeds, 1))
    return 3 / X * (0.5 * common + 0.5 * rng.exponential(size=(seeds, len(X))))


def test_the_value_is_that_of_a_regression_on_the_means() -> None:
    drawn = errors(np.random.default_rng(0))
    expected = stats.linregress(np.log(X), np.log(drawn.mean(0))).slope
    assert slope_of(X, drawn).value == pytest.approx(expected)


def test_the_interval_covers_the_true_slope() -> None:
    """In 95 % of cases, within what 200 cases can tell; and it is as wide as the slope scatters, not wider."""
    rng = np.random.default_rng(1)
    found = [slope_of(X, errors(rng), resamples=300) for _ in range(200)]
    covered = np.mean([s.low <= -1 <= s.high for s in found])
    assert 0.89 <= covered <= 0.99
    scatter = np.std([s.value for s in found])
    assert np.mean([s.half for s in found]) == pytest.approx(1.96 * scatter, rel=0.2)


def test_without_chance_there_is_no_interval() -> None:
    assert slope_of(X, 5 * X[None] ** -2) == pytest.approx((-2, -2, -2))
