"""The theory's numbers: what is known in closed form, and that the measurement follows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprior.reproduce import convex, pictures, theory


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """As the command does."""


@pytest.mark.slow
def test_optima_are_optima() -> None:
    for setting in (convex.quadratic(2.0), convex.logistic(2.0)):
        if setting.name == "quadratic":
            slope = np.mean([setting.slope(i, setting.best) for i in range(convex.N)], 0)
            np.testing.assert_allclose(slope, 0, atol=1e-6)
        assert setting.gap(setting.best) == pytest.approx(0, abs=1e-12)
        assert all(setting.gap(setting.best + 1e-3 * e) > 0 for e in (*np.eye(convex.D), *-np.eye(convex.D)))
        assert setting.gap(setting.best + 0.1) > 1e-4
        assert setting.mu_envelope < setting.mu_f < setting.lam + setting.mu_f


@pytest.mark.slow
def test_full_participation_converges_to_the_optimum_at_the_linear_rate() -> None:
    """With R = 1 and S = N a round is a gradient step on F: the error falls by (1 - step mu_F)^2 or faster."""
    setting = convex.quadratic(2.0)
    step = 0.5
    path = theory.trajectory(setting, step, 40, convex.N, 0, local=1)
    errors = [setting.gap(w) for w in path]
    assert errors[-1] < errors[0] * (1 - step * setting.mu_envelope) ** (2 * 40) * 1.01 + 1e-12


def test_the_weighted_average_and_the_slope() -> None:
    path = np.array([[4.0], [2.0], [1.0]])
    q = 1 - 0.5 * 0.4 / 2
    expected = (4 / q + 2 / q**2) / (1 / q + 1 / q**2)
    assert theory.average(path, 0.5, 0.4)[0] == pytest.approx(expected)
    slope, half = theory.slope_of([1, 10, 100], [5, 0.5, 0.05])
    assert slope == pytest.approx(-1)
    assert half < 1e-6


def test_the_step_bound_shrinks_with_local_steps() -> None:
    setting = convex.quadratic(2.0)
    bounds = [theory.step_bound(setting, r)["bound"] for r in (2, 5, 20)]
    assert (np.diff(bounds) < 0).all()


def test_pictures_are_made(tmp_path: Path) -> None:
    rates = [
        {"problem": "quadratic", "S": s, "T": t, "step": 0.1, "error": 1 / t, "std": 0.0}
        for s in (5, 20)
        for t in (10, 20, 40)
    ]
    radii = [
        {"lambda": lam, "exact": 1 / lam, "noisy": 2 / lam, "4 sigma^2 / lambda^2": 3 / lam} for lam in (1.0, 10.0)
    ]
    steps = [
        {"step / bound": 1.0, "step": 0.1, "error of w^(T)": 1e-3},
        {"step / bound": 9.0, "step": 0.9, "error of w^(T)": 1e30},
    ]
    for path in pictures.draw(rates, radii, steps, tmp_path):
        assert path.read_bytes().startswith(b"\x89PNG")
