"""Per-FedAvg: steps by hand on batches in a known order, closed forms on quadratics, and FedAvg without inner steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import InTurn, Quadratic, assert_close, local, vector

from fedprior.core.hyper import without_effect
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make

# f(w) = h/2 (w - c)^2 with (c, h) of three batches: slopes 2 (w - 1), 2 (w - 7) and w.
BATCHES = np.array([[1.0, 2.0], [7.0, 2.0], [0.0, 1.0]])
STEP: dict[str, Any] = {"R": 1, "alpha": 0.25, "alpha_m": 0.1}


def steps(name: str, w: Vector, x: np.ndarray, **settings: Any) -> np.ndarray:
    """A client's upload from the received w, with one sample of x [n, 2 d] a batch."""
    return np.array(local(make(name, **settings), Quadratic(w.size), (), w, lambda: InTurn(x))[1].tree)


@pytest.mark.usefixtures("float64")
def test_one_step_by_hand() -> None:
    """u = 3 - .25 * 4 = 2 and g = 2 (2 - 7) = -10.   FO: 3 + .1 * 10 = 4.   HF: d = 1 * g, so 3 - .1 (-10 + .25 * 10)."""
    assert steps("perfedavg", vector(3.0), BATCHES, **STEP) == pytest.approx(4.0, abs=1e-12)
    for delta in (1e-3, 10.0):  # the slope of a quadratic is a line: any difference is exact
        assert steps("perfedavg-hf", vector(3.0), BATCHES, delta=delta, **STEP) == pytest.approx(3.75, abs=1e-10)


@pytest.mark.usefixtures("float64")
def test_on_a_quadratic_hf_descends_on_the_loss_after_one_step() -> None:
    """F(w) = f(w - alpha grad f(w)) has the slope h (1 - alpha h)^2 (w - c); FO has one factor 1 - alpha h less."""
    c, h, w = np.array([1.0, -2.0]), np.array([0.5, 3.0]), np.array([4.0, 1.0])
    x = np.tile(np.concatenate([c, h]), (9, 1))
    for name, power in (("perfedavg", 1), ("perfedavg-hf", 2)):
        expected = c + (w - c) * (1 - 0.1 * h * (1 - 0.2 * h) ** power) ** 3
        assert_close(steps(name, vector(*w), x, R=3, alpha=0.2, alpha_m=0.1), expected, rtol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "batches"), [("perfedavg", 2), ("perfedavg-hf", 3)])
def test_without_an_inner_step_it_is_fedavg_on_every_second_of_its_batches(name: str, batches: int) -> None:
    R = 4
    x = np.random.default_rng(0).uniform(0.5, 2.0, (batches * R, 6))
    w = vector(3.0, -1.0, 0.5)
    ours = steps(name, w, x, R=R, alpha=0.0, alpha_m=0.1)
    assert_close(ours, steps("fedavg", w, x[1::batches], R=R, alpha=0.1))


@pytest.mark.usefixtures("float64")
def test_the_server_takes_the_weighted_mean() -> None:
    shares, ids = jnp.array([0.75, 0.25]), jnp.array([0, 1])
    merged = make("perfedavg").merge(vector(9.0), Vector(jnp.array([[2.0], [4.0]])), shares, ids, jax.random.key(0))
    assert_close(merged, vector(2.5))


@pytest.mark.usefixtures("float64")
def test_personal_models_by_hand() -> None:
    """One step of size alpha: 3 - .25 * 4 = 2. Two: 3 - .1 * 4 = 2.6, then 2.6 - .25 * 2 (2.6 - 7) = 4.8."""
    for adapt, expected in ((1, 2.0), (2, 4.8)):
        method, w = make("perfedavg", adapt=adapt, **STEP), vector(3.0)
        weights, models = jax.jit(
            lambda w, m=method: m.personal_model(Quadratic(1), (), w, InTurn(BATCHES), jax.random.key(0))
        )(w)
        assert weights.tolist() == [1.0]
        assert_close(models, Vector(np.array([[expected]])))
        assert_close(w, vector(3.0))


def test_bad_settings() -> None:
    for name, value, valid in (
        ("hessian", "full", "valid: none, free"),
        ("delta", 0.0, "it must be a finite number above 0"),
        ("adapt", 3, "valid: 1, 2"),
        ("alpha_m", -0.1, "it must be a finite number of at least 0"),
    ):
        with pytest.raises(FedpriorError, match=f"PerFedAvg: {name} = {value!r} is not valid; {valid}"):
            make("perfedavg", **{name: value})
    assert without_effect(make("perfedavg", delta=0.1)) == {"delta": "delta needs hessian = free"}
    assert without_effect(make("perfedavg-hf")) == {}
