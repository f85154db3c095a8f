"""Families with a bounded domain against automatic differentiation and 40-digit references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import pytest

from fedprior.errors import FedpriorError

from .support import BOUNDED, FAMILIES, LAM, MU, C, D, H, check_closed_forms, close, flat, solve, vector

pytestmark = pytest.mark.xdist_group("priors")  # compiled functions are shared

GENERATORS: dict[str, Callable[[Any], Any]] = {  # one coordinate, for mpmath
    "bernoulli": lambda x: x * mp.log(x) + (1 - x) * mp.log(1 - x),
    "poisson": lambda x: x * mp.log(x) - x,
    "exponential": lambda x: -1 - mp.log(x),
}


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """Everything here is about many digits."""


@pytest.mark.parametrize("name", BOUNDED)
def test_closed_forms_equal_automatic_differentiation(name: str) -> None:
    check_closed_forms(name)


@pytest.mark.parametrize("name", BOUNDED)
def test_values_and_hessian_products_against_mpmath(name: str) -> None:
    prior, g = FAMILIES[name], GENERATORS[name]
    x, v = prior.to_mean(vector([0.4, -1.1, 0.9])), vector([1.0, -2.0, 0.5])
    with mp.workdps(40):
        means = [mp.mpf(float(a)) for a in flat(x)]
        close(prior.value(x), float(sum(g(a) for a in means)))
        close(flat(prior.curvature(x, v)), [float(mp.diff(g, a, 2) * b) for a, b in zip(means, flat(v), strict=True)])


@pytest.mark.parametrize("name", BOUNDED)
def test_prox_and_envelope_against_forty_digits(name: str) -> None:
    """One parameter at a time: f(u) + lam D(x(u), x(v)) minimised by mpmath, and the envelope differentiated there."""
    link = {"bernoulli": lambda u: 1 / (1 + mp.exp(-u))}.get(name, mp.exp)
    g = GENERATORS[name]

    def divergence(u: Any, v: Any) -> Any:
        x, y = link(u), link(v)
        return g(x) - g(y) - mp.diff(g, y) * (x - y)

    ours = solve(name)(vector(MU))
    thetas, gradient = flat(ours.theta), flat(ours.gradient)
    total = 0.0
    with mp.workdps(40):
        for k in range(D):
            h, c = mp.mpf(H[k]), mp.mpf(C[k])

            def objective(u: Any, v: Any, h: Any = h, c: Any = c) -> Any:
                return h * (u - c) ** 2 / 2 + LAM * divergence(u, v)

            def best(v: Any, k: int = k, objective: Any = objective) -> Any:
                start = mp.mpf(float(thetas[k]))
                return mp.findroot(lambda u: mp.diff(lambda t: objective(t, v), u), start, tol=1e-25)

            v = mp.mpf(MU[k])
            theta = best(v)
            assert float(theta) == pytest.approx(float(thetas[k]), rel=1e-10, abs=1e-10)
            slope = mp.diff(lambda v, best=best, objective=objective: objective(best(v), v), v, h=mp.mpf(10) ** -8)
            assert float(slope) == pytest.approx(gradient[k], rel=1e-8, abs=1e-10)
            total += float(objective(theta, v))
    assert float(ours.envelope) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "mean", "message"),
    [
        ("bernoulli", [0.5, 1.5, 0.1], r"Bernoulli: mean 1.5 is outside its domain \(0, 1\)"),
        ("poisson", [1.0, -2.0, 1.0], r"Poisson: mean -2 is outside its domain \(0, inf\)"),
        ("exponential", [1.0, 1.0, 0.0], r"Exponential: mean 0 is outside its domain \(0, inf\)"),
    ],
)
def test_means_outside_the_domain_are_refused(name: str, mean: list[float], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        FAMILIES[name].to_coordinates(vector(mean))
