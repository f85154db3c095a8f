"""The strategies for the prior's mean by hand on a quadratic, by themselves and inside a step of pFedBreD."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods.pfedbred import PFedBreD
from fedprior.priors.means import MEANS, RMD, Mean, find_mean

from .support import LAM, MU, C, D, H, flat, vector

pytestmark = pytest.mark.xdist_group("means")  # compiled functions are shared
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """Everything here is about many digits."""


class Quadratic(Problem):
    """grad f(w; B) = H (w - c), where the centre c is the batch's only sample."""

    def losses(self, w: Vector, batch: Batch) -> Array:
        return 0.5 * jnp.sum(H * (w.tree - batch.x) ** 2, axis=1)


class OneSample:
    """A client's data that consist of the centre C."""

    size = jnp.array(1)

    def draw(self, count: int) -> Array:
        return jnp.zeros((count, 1), jnp.int32)

    def batch(self, pick: Array) -> Batch:
        return batch_at(C)

    def split(self, fraction: float) -> tuple[OneSample, OneSample]:
        raise NotImplementedError

    def fold(self, f: Any, start: Any) -> Any:
        raise NotImplementedError


def batch_at(centre: np.ndarray) -> Batch:
    return Batch(jnp.asarray(centre)[None], jnp.zeros(1, jnp.int32), jnp.ones(1))


SHRINK = RMD(lambda problem, w, batch: 0.5 * (w @ w))
ETA, ETA_ALPHA, ETA_INNER = 0.2, 0.3, 0.25
MEMORY, THETA = np.full(D, 0.3), np.zeros(D)  # the client's own last local model m, and its personal model


def mu_by_hand(name: str) -> np.ndarray:
    """mu(w) = w - eta_alpha g(w) - eta (m - theta) at w = MU, on one batch."""
    gradient = H * (MU - C)
    memory = ETA * (MEMORY - THETA)
    return {
        "identity": MU,
        "lg": MU - ETA_ALPHA * gradient,
        "meg": MU - memory,
        "mh": MU - ETA_ALPHA * gradient - memory,
        "mh-variant": MU - ETA_ALPHA * H * (MU - ETA_INNER * gradient - C) - memory,
        "shrink": (1 - ETA_ALPHA) * MU,
    }[name]


# -- by themselves ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MEANS, "shrink"])
def test_the_mean_of_each_strategy(name: str) -> None:
    mean = SHRINK if name == "shrink" else find_mean(name)
    mu = MU
    if mean.gradient:
        mu = mu - ETA_ALPHA * flat(mean.slope(Quadratic(), vector(MU), [batch_at(C)], ETA_INNER))
    if mean.memory:
        mu = mu - ETA * (MEMORY - THETA)
    np.testing.assert_allclose(mu, mu_by_hand(name), rtol=1e-12)


def test_which_of_two_batches_a_gradient_is_taken_on() -> None:
    """The first; with an inner step, that is taken on the first, and the gradient then on the last."""
    batches, other = [batch_at(C), batch_at(C + 1)], C + 1
    plain = flat(find_mean("mh").slope(Quadratic(), vector(MU), batches, ETA_INNER))
    np.testing.assert_allclose(plain, H * (MU - C), rtol=1e-12)
    inner = flat(find_mean("mh-variant").slope(Quadratic(), vector(MU), batches, ETA_INNER))
    np.testing.assert_allclose(inner, H * (MU - ETA_INNER * H * (MU - C) - other), rtol=1e-12)


def test_a_potential_sees_the_problem_and_the_first_batch() -> None:
    """With phi = 3 f the slope is 3 grad f."""
    mean = RMD(phi=lambda problem, w, batch: 3 * problem.loss(w, batch))
    assert (mean.gradient, mean.memory, mean.inner) == (True, False, False)
    slope = mean.slope(Quadratic(), vector(MU), [batch_at(C), batch_at(C + 1)], ETA_INNER)
    np.testing.assert_allclose(flat(slope), 3 * H * (MU - C), rtol=1e-12)


def test_an_inner_step_goes_along_the_potential_too() -> None:
    """With phi = |w|^2 / 2: grad phi(w - eta_inner grad phi(w)) = (1 - eta_inner) w."""
    mean = RMD(lambda problem, w, batch: 0.5 * (w @ w), inner=True)
    np.testing.assert_allclose(
        flat(mean.slope(Quadratic(), vector(MU), [batch_at(C)], ETA_INNER)), (1 - ETA_INNER) * MU, rtol=1e-12
    )


def test_a_mean_is_given_as_it_is_written() -> None:
    """What it has by name, so that none of its terms is taken for a potential."""
    arguments: Any = (True,)
    with pytest.raises(TypeError, match="positional"):
        Mean(*arguments)
    for phi in (None, True):
        given: Any = phi
        with pytest.raises(FedpriorError, match=f"RMD: phi = {phi} is not valid; give a function phi"):
            RMD(given)


def test_means_by_name() -> None:
    terms = {name: (mean.gradient, mean.memory, mean.inner) for name, mean in MEANS.items()}
    assert terms == {
        "identity": (False, False, False),
        "lg": (True, False, False),
        "meg": (False, True, False),
        "mh": (True, True, False),
        "mh-variant": (True, True, True),
    }
    assert find_mean(SHRINK) is SHRINK
    assert find_mean("mh") == Mean(gradient=True, memory=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("mg", "unknown mean 'mg' .did you mean 'meg'"),
        (RMD, r"a mean is one of identity, lg, .*, or an object of .*Mean such as RMD\(phi\); given: <class .*RMD"),
    ],
)
def test_what_is_no_mean_is_told(given: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        find_mean(given)


def test_the_table_of_priors_is_read_without_jax() -> None:
    code = "import sys, fedprior.priors as p; assert 'poisson' in p.PRIORS; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- inside pFedBreD: the envelope's gradient in w, through the mean -------------------------------------------------------

SOLVED: dict[str, Any] = {"R": 1, "K": 20_000, "tol": 1e-13, "lam": LAM, "alpha": 0.1, "alpha_m": 0.5}
SETTINGS: dict[str, dict[str, Any]] = {
    f"{name} {gradient}": {"mean": SHRINK if name == "shrink" else name, "gradient": gradient}
    for name, gradient in [
        *(
            (name, gradient)
            for name in ("identity", "lg", "meg", "mh", "shrink")
            for gradient in ("first_order", "exact")
        ),
        ("mh-variant", "first_order"),
        ("mh-variant", "exact"),
    ]
}
ONE_STEP: dict[str, Any] = {"R": 1, "K": 1, "lam": LAM, "alpha": 0.1, "alpha_m": 0.5, "mean": "identity"}
STARTS: dict[str, dict[str, Any]] = {
    "received, last": {},
    "own, last": {"w_init": "own"},
    "received, received": {"theta_init": "received"},
}


@cache
def local_rounds() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """w and theta after one iteration from w = MU, m = 0.3, theta = 0 with every setting, in one program."""
    etas: dict[str, Any] = {"eta": ETA, "eta_alpha": ETA_ALPHA, "eta_inner": ETA_INNER}
    methods = {name: PFedBreD(**SOLVED, **s, **etas) for name, s in SETTINGS.items()}
    methods |= {name: PFedBreD(**ONE_STEP, **s) for name, s in STARTS.items()}

    def local(method: PFedBreD, m: Vector, theta: Vector, w: Vector) -> tuple[Vector, Vector]:
        client = method.client(m, KEY)._replace(theta=theta)
        client, up, _ = method.local(Quadratic(), client, w, OneSample(), KEY)
        return up, client.theta

    rounds = jax.jit(lambda *given: {name: local(method, *given) for name, method in methods.items()})
    results = rounds(vector(MEMORY), vector(THETA), vector(MU))
    return {name: (flat(w), flat(theta)) for name, (w, theta) in results.items()}


def gradient_taken(name: str) -> np.ndarray:
    """(w_old - w_new) / alpha_m."""
    return (MU - local_rounds()[name][0]) / 0.5


@pytest.mark.parametrize("name", SETTINGS)
def test_first_order_and_exact_gradients(name: str) -> None:
    """lam (mu - prox(mu)), times Dmu where the gradient is exact: I - eta_alpha H for the loss, 1 - eta_alpha for phi.

    After an inner step H (I - eta_inner H) takes the place of H.
    """
    mean, gradient = name.split()
    mu = mu_by_hand(mean)
    theta = (H * C + LAM * mu) / (H + LAM)
    slopes: dict[str, Any] = {"lg": H, "mh": H, "mh-variant": H * (1 - ETA_INNER * H), "shrink": 1.0}
    jacobian = 1 - ETA_ALPHA * slopes.get(mean, 0.0)
    expected = LAM * (mu - theta) * (jacobian if gradient == "exact" else 1.0)
    np.testing.assert_allclose(gradient_taken(name), expected, rtol=1e-9)


def test_for_meg_exact_is_first_order() -> None:
    """The memory is a constant to the gradient."""
    np.testing.assert_array_equal(gradient_taken("meg exact"), gradient_taken("meg first_order"))


@pytest.mark.parametrize(
    ("name", "w", "theta"),
    [("received, last", MU, THETA), ("own, last", MEMORY, THETA), ("received, received", MU, MU)],
)
def test_start_of_w_and_theta(name: str, w: np.ndarray, theta: np.ndarray) -> None:
    """w_init = own goes on from m = 0.3; theta_init = received starts the proximal loop at the received w."""
    theta = theta - 0.1 * (H * (theta - C) + LAM * (theta - w))
    w = w - 0.5 * LAM * (w - theta)
    np.testing.assert_allclose(local_rounds()[name], [w, theta], rtol=1e-12)
